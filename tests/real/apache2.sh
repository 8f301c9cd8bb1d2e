#!/bin/bash
# apache2 prefork on the loopback: requests from ab and curl while children come and go, CGI, a
# graceful restart under load, a graceful stop; no process stays behind.
# odfork: expect=stats program=apache2 modes=huge,small
. "$(dirname "$0")/stage.sh"
need /usr/sbin/apache2 apache2-bin
need /usr/lib/apache2/modules/mod_mpm_prefork.so apache2-bin
need /usr/bin/ab apache2-utils
need /usr/bin/curl curl
dir=$SCRATCH/apache2
mkdir -p "$dir/www" "$dir/cgi" && cd "$dir" || exit 1
port=$(free_port)
url=http://127.0.0.1:$port
curl=(/usr/bin/curl --silent --noproxy '*' --max-time $((20 * slow)))

cat >apache2.conf <<CONF
ServerName localhost
ServerRoot $dir
DefaultRuntimeDir $dir
PidFile $dir/apache2.pid
Listen 127.0.0.1:$port
LoadModule mpm_prefork_module /usr/lib/apache2/modules/mod_mpm_prefork.so
LoadModule authz_core_module /usr/lib/apache2/modules/mod_authz_core.so
LoadModule dir_module /usr/lib/apache2/modules/mod_dir.so
LoadModule alias_module /usr/lib/apache2/modules/mod_alias.so
LoadModule cgi_module /usr/lib/apache2/modules/mod_cgi.so
LoadModule deflate_module /usr/lib/apache2/modules/mod_deflate.so
LoadModule filter_module /usr/lib/apache2/modules/mod_filter.so
ErrorLog $dir/error.log
LogFormat "%>s %B %U" short
CustomLog $dir/access.log short
DocumentRoot $dir/www
ScriptAlias /cgi/ $dir/cgi/
<Directory $dir>
    Require all granted
</Directory>
AddOutputFilterByType DEFLATE text/html
StartServers 6
MinSpareServers 4
MaxSpareServers 8
MaxRequestWorkers 8
MaxConnectionsPerChild 120
CONF
[ "$(id -u)" -eq 0 ] && printf 'User www-data\nGroup www-data\n' >>apache2.conf
awk 'BEGIN { for (i = 0; i < 3000; i++) print "line", i, i * 7919 % 10007 }' >www/page.html
printf '#!/bin/sh\nprintf "Content-Type: text/plain\\r\\n\\r\\n"\necho "cgi $QUERY_STRING $((QUERY_STRING * 2))"\n' >cgi/double
chmod 755 cgi/double

# a session of its own: prefork signals its whole process group on restart and stop
/usr/bin/setsid "${launch[@]}" /usr/sbin/apache2 -f "$dir/apache2.conf" \
    -D FOREGROUND >out.log 2>&1 &
server=$!
mind $server
wait_until 20 "apache2 to answer" "${curl[@]}" "$url/page.html"

load() { # load REQUESTS NAME [AB-OPTIONS]: prints what must not vary
    local requests=$1 name=$2
    shift 2
    /usr/bin/ab -q -r -s $((20 * slow)) -n "$requests" -c 4 "$@" "$url/page.html" >ab.log 2>&1 ||
        fail "ab: $(tail -n 2 ab.log)"
    echo "$name: $(grep -E '^(Complete requests|Failed requests|Non-2xx|HTML transferred)' ab.log | tr -s ' ' | tr '\n' ';')"
}
same_bodies() { # N requests, one connection each: how many different (status, body) pairs came back
    local i
    for ((i = 0; i < $1; i++)); do
        "${curl[@]}" --output body --write-out '%{http_code} ' "$url/page.html" && digest <body
    done | sort | uniq -c | tr -s ' '
}

load 600 "load"
load 600 "keep-alive" -k
same_bodies 30
for i in 1 20 300; do "${curl[@]}" "$url/cgi/double?$i"; done
"${curl[@]}" --compressed "$url/page.html" | digest
"${curl[@]}" --output /dev/null --write-out 'missing: %{http_code}\n' "$url/nothing"

/usr/bin/ab -q -r -s $((20 * slow)) -n 500 -c 2 "$url/page.html" >during.log 2>&1 &
during=$!
kill -USR1 $server # graceful restart: children finish their request, new ones are forked
wait_until 20 "the graceful restart" eval "[ \$(grep -c 'resuming normal operations' error.log) -ge 2 ]"
wait $during
echo "during restart: $(grep -E '^Complete requests' during.log | tr -s ' ')"
load 300 "after restart"
kill -HUP $server
wait_until 20 "the restart" eval "[ \$(grep -c 'resuming normal operations' error.log) -ge 3 ]"
load 300 "after hangup"

kill -WINCH $server # graceful stop
wait $server
echo "exit status $?"
echo "crashed children: $(grep -c 'exit signal' error.log)"
echo "could not fork: $(grep -c 'fork: Unable' error.log)"
left=$(grep -laE "f.?$dir/apache2.conf" /proc/[0-9]*/cmdline 2>/dev/null | wc -l)
echo "processes left: $left"
