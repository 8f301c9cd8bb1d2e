# A large hash and array; children check, change and report; the parent goes on changing its own.
use strict;
use warnings;
use Digest::MD5 'md5_hex';
$| = 1;

my (%table, @items);
$table{"key$_"} = [ $_, "value " . $_ * 7919 ] for 1 .. 60_000;
push @items, sprintf("%08d", $_) x 10 for 1 .. 120_000;

sub digest {
    my $md5 = Digest::MD5->new;
    $md5->add("$_$table{$_}[0]$table{$_}[1]") for sort keys %table;
    $md5->add($_) for @items;
    return $md5->hexdigest;
}

# what the child prints comes back through perl's own fork-open
sub in_child {
    my ($work) = @_;
    my $pid = open(my $pipe, '-|') // die "fork: $!";
    if (!$pid) {
        print $work->();
        exit 5;
    }
    my $said = do { local $/; <$pipe> };
    close $pipe;
    return $said . ' ' . ($? >> 8);
}

print 'start ', digest(), "\n";
for my $turn (1 .. 3) {
    print "turn $turn ", in_child(\&digest), "\n";
    $table{"key$_"}[1] .= "+$turn" for map { $_ * 37 * $turn } 1 .. 1000;
    $items[ $_ * 101 ] = "changed $turn" for 1 .. 1100;
    print "parent $turn ", digest(), "\n";
}
print 'nested ', in_child(sub { $items[5] = 'x'; in_child(sub { $items[6] = 'y'; digest() }) . ' ' . digest() }), "\n";

my %status;
for my $code (0, 3, 200) {
    my $pid = fork // die;
    if (!$pid) { undef %table; @items = (); exit $code }
    $status{$pid} = $code;
}
my $pid = fork // die;
if (!$pid) { kill 'KILL', $$; sleep 10 }
$status{$pid} = 'killed';
my @seen;
while ((my $done = wait) > 0) { push @seen, "$status{$done}=$?" }
print 'statuses ', join(' ', sort @seen), "\n";

my $caught = 0;
$SIG{USR1} = sub { $caught++ };
for (1 .. 3) {
    my $child = fork // die;
    if (!$child) { kill 'USR1', getppid; exit 0 }
    waitpid $child, 0;
}
print 'signals ', ($caught >= 1 ? 'came' : 'lost'), "\n";
print 'backticks ', `printf '%s' one two | md5sum`;
print 'system ', system('true; exit 9') >> 8, "\n";
open(my $sort, '|-', 'sort -r | head -n 2') // die;
print $sort "$_\n" for 'b', 'a', 'c';
close $sort;
splice @items, 1000, 100_000;
delete $table{"key$_"} for 1 .. 40_000;
print 'smaller ', in_child(\&digest), ' ', digest(), "\n";
my @late = map { 'z' x 100 . $_ } 1 .. 50_000;
print 'late ', in_child(sub { md5_hex(join '', @late) }), ' ', md5_hex(join '', @late), "\n";
