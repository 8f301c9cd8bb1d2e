# 100 MB of strings; forked children digest and change them; the parent collects, compacts and changes between.
require "zlib"
$stdout.sync = true

ITEMS = Array.new(100_000) { |i| "%08d" % (i * 7919 % 1_000_003) * 125 }

def digest
  ITEMS.reduce(0) { |sum, item| Zlib.crc32(item, sum) }.to_s(16)
end

def in_child
  reader, writer = IO.pipe
  pid = fork do
    reader.close
    writer.write(yield)
    writer.close
    exit!(4)
  end
  writer.close
  said = reader.read
  reader.close
  _, status = Process.wait2(pid)
  "#{said} #{status.exitstatus}"
end

puts "start #{digest}"
3.times do |turn|
  puts "turn #{turn} #{in_child { digest }}"
  puts "spoil #{in_child { ITEMS.each_index { |i| ITEMS[i] = "s#{i}" if i % 7 == turn }; GC.start; digest }}"
  (0...ITEMS.size).step(97 + turn) { |i| ITEMS[i] = ITEMS[i].reverse }
  GC.start
  GC.compact if turn == 1
  puts "parent #{turn} #{digest}"
end
puts "nested #{in_child { ITEMS[0] = "n"; in_child { ITEMS[1] = "m"; digest } + " " + digest }}"

IO.popen("-") do |pipe|
  if pipe
    puts "popen #{pipe.read}"
  else
    print digest
  end
end
puts "popen status #{$?.exitstatus}"

# other threads run while this one forks; only the forking thread exists in the child
counts = Array.new(3, 0)
stop = false
threads = counts.each_index.map { |i| Thread.new { until stop do counts[i] += 1; Thread.pass if counts[i] % 500 == 0 end } }
results = 5.times.map { in_child { Thread.list.size.to_s + " " + digest } }
stop = true
threads.each(&:join)
puts "threads #{results.uniq.inspect} #{counts.all?(&:positive?)}"

statuses = [0, 7, 255].map { |code| Process.wait2(fork { exit!(code) })[1].exitstatus }
signalled = Process.wait2(fork { Process.kill(:KILL, Process.pid); sleep })[1].termsig
puts "statuses #{statuses.inspect} #{signalled}"
puts "system #{system("exit 3").inspect} #{`echo backticks`.strip}"
at_exit { puts "at_exit in #{$0 ? "parent" : ""}" }
pid = fork { exit }
Process.wait(pid)
ITEMS.replace(ITEMS.first(1000))
GC.start
puts "small #{in_child { digest }} #{digest}"
