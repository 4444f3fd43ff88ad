package normalize_test

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/harness/gate/evidence"
	"github.com/evalbox/evalbox/harness/gate/normalize"
)

// sameAfter are pairs of logs that differ only in values that change from run to run, and
// their common normalized log.
var sameAfter = []struct{ rule, a, b, want string }{
	{"timestamp-iso", "2026-01-02T03:04:05Z start", "2027-11-12T13:14:15Z start", "<time> start"},
	{"timestamp-iso", "2026-01-02 03:04:05,678 INFO x", "2026-05-06 07:08:09,001 INFO x", "<time> INFO x"},
	{"timestamp-iso", "at 2026-01-02 03:04:05.678901234 +0000 UTC m=+0.000123 ok", "at 2026-01-02 03:04:06.1 +0000 UTC m=+1.5 ok", "at <time> ok"},
	{"timestamp-iso", "2026/01/02 15:04:05.000001 main.go:3: x", "2026/01/02 15:04:06.000002 main.go:3: x", "<time> main.go:3: x"},
	{"timestamp-iso", "[2026-01-02T03:04:05+01:00] x", "[2026-01-02T03:04:06+01:00] x", "[<time>] x"},
	{"timestamp-compact", "made 20260102T030405Z", "made 20270102T030405Z", "made <time>"},
	{"timestamp-rfc1123", "Date: Fri, 02 Jan 2026 03:04:05 GMT", "Date: Sat, 03 Jan 2026 13:04:05 GMT", "Date: <time>"},
	{"timestamp-ctime", "Fri Jan  2 15:04:05 UTC 2026", "Sat Jan 13 15:04:09 UTC 2026", "<time>"},
	{"timestamp-syslog", "Jan  2 03:04:05 host x", "Feb 12 13:14:15 host x", "<time> host x"},
	{"syslog-process", "Jan  2 03:04:05 build-1 cron[12]: x", "Feb 12 13:14:15 build-2 cron[991]: x", "<time> <host> cron[<pid>]: x"},
	{"process-prefix", "postgres[4711]: ready", "postgres[12]: ready", "postgres[<pid>]: ready"},
	{"process-prefix", "[2026-01-02T03:04:05Z] gunicorn[4711]: booted", "[2026-01-02T03:04:06Z] gunicorn[7]: booted", "[<time>] gunicorn[<pid>]: booted"},
	{"timestamp-http", "- - [02/Jan/2026:03:04:05 -0700] x", "- - [03/Jan/2026:03:04:06 -0700] x", "- - [<time>] x"},
	{"timestamp-glog", "I0102 03:04:05.678901   12345 file.go:12] x", "I0103 03:04:05.6   1 file.go:12] x", "I<time> <pid> file.go:12] x"},
	{"clock-12h", "done at 3:04PM", "done at 11:59 PM", "done at <time>"},
	{"clock", "[03:04:05] INFO", "[13:14:15.123] INFO", "[<time>] INFO"},
	{"hours", "took 0:01:01", "took 1:00:59.5", "took <duration>"},
	{"epoch", `{"timestamp": 1700000000, "n": 3}`, `{"timestamp": 1800000000.123, "n": 3}`, `{"timestamp": <time>, "n": 3}`},
	{"epoch", "created_at=1700000000123", "created_at=1700000000999", "created_at=<time>"},
	{"pytest-duration", "2 passed in 0.43s", "2 passed in 1.02s", "2 passed in <duration>"},
	{"pytest-duration", "2 passed in 59.99s", "2 passed in 61.02s (0:01:01)", "2 passed in <duration>"},
	{"pytest-rule", "===== 2 passed, 1 warning in 9.99s =====", "==== 2 passed, 1 warning in 75.50s (0:01:15) ===", "=== 2 passed, 1 warning in <duration> ==="},
	{"pytest-rule", "=========== no tests ran in 0.01s ==========", "========== no tests ran in 10.01s ==========", "=== no tests ran in <duration> ==="},
	{"slowest-tests", "=== slowest 1 durations ===\n0.03s call     t.py::test_a", "=== slowest 1 durations ===\n0.05s call     t.py::test_b", "=== slowest 1 durations ===\n<slowest tests>"},
	{"slowest-duration", "0.03s call     tests/test_x.py::test_a", "10.09s call     tests/test_x.py::test_a", "<duration> call     tests/test_x.py::test_a"},
	{"slowest-duration", "0.030s     test_a (m.T.test_a)", "0.031s     test_a (m.T.test_a)", "<duration>     test_a (m.T.test_a)"},
	{"unittest-duration", "Ran 3 tests in 0.001s", "Ran 3 tests in 0.245s", "Ran 3 tests in <duration>"},
	{"go-package-duration", "ok  \tpkg/a\t0.012s", "ok  \tpkg/a\t1.500s", "ok  \tpkg/a\t<duration>"},
	{"go-package-duration", "FAIL\tpkg/a\t0.012s", "FAIL\tpkg/a\t1.500s", "FAIL\tpkg/a\t<duration>"},
	{"bracketed-duration", "--- PASS: TestWait/10ms (0.01s)", "--- PASS: TestWait/10ms (1.01s)", "--- PASS: TestWait/10ms (<duration>)"},
	{"bracketed-duration", "✓ waits 10 ms (5 ms)", "✓ waits 10 ms (17 ms)", "✓ waits 10 ms (<duration>)"},
	{"go-benchmark", "BenchmarkX-8   \t 1000000\t      1234 ns/op\t 16 B/op", "BenchmarkX-8   \t 900\t      12.5 ns/op\t 16 B/op", "BenchmarkX-8   \t <n>\t      <duration>\t 16 B/op"},
	{"prove-duration", "Files=1, Tests=3,  0 wallclock secs ( 0.02 usr  0.00 sys =  0.02 CPU)", "Files=1, Tests=3, 12 wallclock secs ( 1.02 usr  0.00 sys =  1.02 CPU)", "Files=1, Tests=3, <duration>"},
	{"prove-duration", "ok      157 ms ( 0.00 usr  0.00 sys +  0.03 cusr  0.00 csys =  0.03 CPU)", "ok        1 s ( 0.01 usr  0.00 sys +  0.03 cusr  0.00 csys =  0.04 CPU)", "ok <duration>"},
	{"tap-duration", "ok 1 - waits 10ms # time=12.5ms", "ok 1 - waits 10ms # time=1ms", "ok 1 - waits 10ms # time=<duration>"},
	{"minutes", "Time: 00:00.123, Memory: 6.00 MB", "Time: 01:00.5, Memory: 6.00 MB", "Time: <duration>, Memory: 6.00 MB"},
	{"named-duration", `{"elapsed": 0.123, "n": 3}`, `{"elapsed": 12, "n": 3}`, `{"elapsed": <duration>, "n": 3}`},
	{"named-duration", "duration_ms 12.3", "duration_ms 12.3", "duration_ms 12.3"},
	{"duration", "Time:        1.234 s", "Time:        9.876 s", "Time:        <duration>"},
	{"duration", "took 12ms, then 1m30.5s", "took 9µs, then 3s", "took <duration>, then <duration>"},
	{"duration", "Done in 1.23s.", "Done in 4s.", "Done in <duration>."},
	{"duration", "Finished in 0.00123 seconds", "Finished in 1.2e-05 seconds", "Finished in <duration>"},
	{"pid", "pid=1234 ready", "pid=77 ready", "pid=<pid> ready"},
	{"pid", "[pid 12] x", "[pid 9] x", "[pid <pid>] x"},
	{"xdist-progress", "gw0 [4] / gw1 [4]\n\n..F [ 75%]\n. [100%]\n=== FAILURES ===", "gw0 [4] / gw1 [4]\n\nF. [ 50%]\n.. [100%]\n=== FAILURES ===", "gw0 [4] / gw1 [4]\n\n<progress> 3 of \".\", 1 of \"F\"\n=== FAILURES ==="},
	{"pid", "worker (PID 12) and pid (7)", "worker (PID 9) and pid (11)", "worker (PID <pid>) and pid (<pid>)"},
	{"timestamp-day-first", "28 Nov 2026 12:00:00.123 x", "1 Dec 2026 01:00:00 x", "<time> x"},
	{"timestamp-day-first", "[28-Nov-2026 12:00:00] NOTICE: x", "[01-Dec-2026 12:00:01] NOTICE: x", "[<time>] NOTICE: x"},
	{"timestamp-glog", "I20260102 03:04:05.678901 12 file.cc:12] x", "I20260103 03:04:05.678901 7 file.cc:12] x", "I<time> <pid> file.cc:12] x"},
	{"timestamp-glog", "E0000 00:00:1700000000.123456      12 file.cc:12] x", "E0000 00:00:1800000000.123456       7 file.cc:12] x", "E<time> <pid> file.cc:12] x"},
	{"timestamp-glog", "I0102 03:04:05.678901 140735340871680 app.py:12] x", "I0102 03:04:05.678901 140427067066048 app.py:12] x", "I<time> <pid> app.py:12] x"},
	{"timestamp-chromium", "[7:7:0102/030405.678901:ERROR:gpu.cc(12)] x", "[8:9:0102/030406.1:ERROR:gpu.cc(12)] x", "[<pid>:<pid>:<time>:ERROR:gpu.cc(12)] x"},
	{"log-process", "2026-01-02 03:04:05,678 [7] INFO ready", "2026-01-02 03:04:06,001 [12] INFO ready", "<time> [<pid>] INFO ready"},
	{"log-process", "[2026-01-02 03:04:05 +0000] [7] [ERROR] AssertionError", "[2026-01-02 03:04:06 +0000] [8] [ERROR] AssertionError", "[<time>] [<pid>] [ERROR] AssertionError"},
	{"log-process", "2026-01-02 03:04:05.678 UTC [7] LOG:  ready", "2026-01-02 03:04:05.679 UTC [71] LOG:  ready", "<time> [<pid>] LOG:  ready"},
	{"log-process", "2026-01-02 03:04:05.678 UTC [7] me@db ERROR:  x", "2026-01-02 03:04:05.679 UTC [71] me@db ERROR:  x", "<time> [<pid>] me@db ERROR:  x"},
	{"log-process", "2026-01-02 03:04:05 - app[7] - INFO - x", "2026-01-02 03:04:05 - app[8] - INFO - x", "<time> - app[<pid>] - INFO - x"},
	{"log-process", "2026-01-02 03:04:05 [7:140735340871680] [info] x", "2026-01-02 03:04:05 [8:140427067066048] [info] x", "<time> [<pid>] [info] x"},
	{"log-process", "03:04:05 [7/MainThread] debug: x", "03:04:05 [8/MainThread] debug: x", "<time> [<pid>/MainThread] debug: x"},
	{"log-process-bare", "2026-01-02 03:04:05,678 7 INFO x", "2026-01-02 03:04:05,678 71 INFO x", "<time> <pid> INFO x"},
	{"log-process-bare", "2026-01-02 03:04:05,678 - app - 7 - WARNING - x", "2026-01-02 03:04:05,678 - app - 71 - WARNING - x", "<time> - app - <pid> - WARNING - x"},
	{"log-process-bare", "2026-01-02 03:04:05 | 7 | 140735340871680 | INFO | x", "2026-01-02 03:04:05 | 8 | 140427067066048 | INFO | x", "<time> | <pid> | INFO | x"},
	{"log-process-first", "[8] 28 Nov 12:00:00.123 * x", "[17] 1 Dec 12:00:00.123 * x", "[<pid>] <time> * x"},
	{"log-process-first", "7:M 28 Nov 2026 12:00:00.123 # x", "8:M 29 Nov 2026 12:00:00.123 # x", "<pid>:M <time> # x"},
	{"log-process-first", "7 2026-01-02 03:04:05,678 INFO x", "8 2026-01-02 03:04:05,679 INFO x", "<pid> <time> INFO x"},
	{"log-process-only", "[7] [ERROR] x", "[8] [ERROR] x", "[<pid>] [ERROR] x"},
	{"log-process-only", "[7] INFO x", "[8] INFO x", "[<pid>] INFO x"},
	{"log-process-thread", "INFO 2026-01-02 03:04:05,678 views 7 140735340871680 x", "INFO 2026-01-02 03:04:05,678 views 8 140427067066048 x", "INFO <time> views <pid> x"},
	{"log-process-thread", "INFO 2026-01-02 03:04:05,678 140735340871680 x", "INFO 2026-01-02 03:04:05,678 140427067066048 x", "INFO <time> <pid> x"},
	{"log-process-thread", "2026-01-02 03:04:05 - INFO - views - 7 - 140735340871680 - x", "2026-01-02 03:04:05 - INFO - views - 8 - 140427067066048 - x", "<time> - INFO - views - <pid> - x"},
	{"log-process-thread", "[2026-01-02 03:04:05] [app] [INFO] [7:140735340871680] x", "[2026-01-02 03:04:05] [app] [INFO] [8:140427067066048] x", "[<time>] [app] [INFO] [<pid>] x"},
	{"log-process-thread", "2026-01-02 03:04:05 INFO [140735340871680] x", "2026-01-02 03:04:05 INFO [140427067066048] x", "<time> INFO [<pid>] x"},
	{"log-process-ruby", "I, [2026-01-02T03:04:05.678901 #7]  INFO -- : x", "I, [2026-01-02T03:04:06.678901 #8]  INFO -- : x", "I, [<time> #<pid>]  INFO -- : x"},
	{"log-process-spring", "2026-01-02T03:04:05.678Z  INFO 7 --- [main] c.App : x", "2026-01-02T03:04:05.679Z  INFO 8 --- [main] c.App : x", "<time>  INFO <pid> --- [main] c.App : x"},
	{"log-process-nginx", "2026/01/02 03:04:05 [notice] 7#7: x", "2026/01/02 03:04:06 [notice] 8#8: x", "<time> [notice] <pid>#<pid>: x"},
	{"log-process-haproxy", "[WARNING] 331/120000 (7) : x", "[WARNING] 332/120001 (8) : x", "[WARNING] (<pid>) : x"},
	{"pid-parent", "<ForkProcess name='a' pid=7 parent=1 started>", "<ForkProcess name='a' pid=8 parent=2 started>", "<ForkProcess name='a' pid=<pid> parent=<pid> started>"},
	{"thread-sidekiq", "2026-01-02T03:04:05.678Z pid=7 tid=gqk INFO: x", "2026-01-02T03:04:05.678Z pid=8 tid=1x2 INFO: x", "<time> pid=<pid> tid=<pid> INFO: x"},
	{"thread-java", "prio=5 tid=0x00007f1234567890 nid=0x7 runnable", "prio=5 tid=0x00007f1234567000 nid=12 runnable", "prio=5 tid=<address> nid=<pid> runnable"},
	{"thread-rust", "thread 'main' (7) panicked at src/main.rs:2:5:", "thread 'main' (8) panicked at src/main.rs:2:5:", "thread 'main' (<pid>) panicked at src/main.rs:2:5:"},
	{"thread-rust", "ThreadId(02) x", "ThreadId(11) x", "ThreadId(<pid>) x"},
	{"thread-ident", "in thread 140735340871680", "in thread 140427067066048", "in thread <pid>"},
	{"thread-ident", "<Thread(Thread-1 (run), started daemon 140735340871680)>", "<Thread(Thread-1 (run), started daemon 140427067066048)>", "<Thread(Thread-1 (run), started daemon <pid>)>"},
	{"process-server", "INFO:     Started server process [8]", "INFO:     Started server process [9]", "INFO:     Started server process [<pid>]"},
	{"process-node", "(node:7) DeprecationWarning: x", "(node:8) DeprecationWarning: x", "(node:<pid>) DeprecationWarning: x"},
	{"process-checker", "==7==ERROR: AddressSanitizer: x", "==8==ERROR: AddressSanitizer: x", "==<pid>==ERROR: AddressSanitizer: x"},
	{"process-checker", "==7== Memcheck", "==1234== Memcheck", "==<pid>== Memcheck"},
	{"process-shell", "run.sh: line 3:     8 Killed                  ./x", "run.sh: line 3:    11 Killed                  ./x", "run.sh: line 3: <pid> Killed                  ./x"},
	{"pool-worker", "ForkPoolWorker-1 and pool-1-thread-3", "ForkPoolWorker-2 and pool-1-thread-1", "ForkPoolWorker-<n> and pool-1-thread-<n>"},
	{"xdist-crash", "replacing crashed worker gw0", "replacing crashed worker gw3", "replacing crashed worker <worker>"},
	{"xdist-worker", "[gw0] [ 72/150] PASSED t.py::a", "[gw3] [  1/150] PASSED t.py::a", "[<worker>] PASSED t.py::a"},
	// The first line of a test comes after its name.
	{"timestamp-iso", "t.py::test_a at 2026-01-02 03:04:05", "t.py::test_a at 2026-01-02 03:04:06", "t.py::test_a at <time>"},
	{"duration", "t.py::T::test_b[10ms] took 775ms", "t.py::T::test_b[10ms] took 12ms", "t.py::T::test_b[10ms] took <duration>"},
	{"timestamp-glog", "t.py::test_a[a b] I0102 03:04:05.678901 7 file.go:12] x", "t.py::test_a[a b] I0102 03:04:05.678902 8 file.go:12] x", "t.py::test_a[a b] I<time> <pid> file.go:12] x"},
	{"log-process", "test_a (m.T.test_a) ... 03:04:05 [7] INFO x", "test_a (m.T.test_a) ... 03:04:06 [8] INFO x", "test_a (m.T.test_a) ... <time> [<pid>] INFO x"},
	{"clock", "test a::tests::at_10 ... at 03:04:05", "test a::tests::at_10 ... at 03:04:06", "test a::tests::at_10 ... at <time>"},
	{"process", "process 12 exited", "process 4711 exited", "process <pid> exited"},
	{"goroutine", "goroutine 12 [running]:", "goroutine 7 [running]:", "goroutine <n> [running]:"},
	{"address-of", "E   assert <Foo object at 0x7f1234567890> is None", "E   assert <Foo object at 0x7fabcdefabcd> is None", "E   assert <Foo object at <address>> is None"},
	{"address", "panic: 0xc000012345", "panic: 0xc000abcdef", "panic: <address>"},
	{"tmp-pytest", "/tmp/pytest-of-root/pytest-0/test_a0/x", "/tmp/pytest-of-me/pytest-17/test_a0/x", "<tmp>/test_a0/x"},
	{"tmp-python", "wrote /tmp/tmpab12cd34/out", "wrote /tmp/tmpzzzz_zzz/out", "wrote <tmp>/out"},
	{"tmp-mktemp", "wrote /tmp/tmp.AbCdEf1234", "wrote /tmp/tmp.0bCdEf1234", "wrote <tmp>"},
	{"tmp-go", "/tmp/go-build123456/b001/x.test", "/tmp/go-build99/b001/x.test", "<tmp>/b001/x.test"},
	{"tmp-go", "open /tmp/TestFoo123456789/001/x", "open /tmp/TestFoo987654321/001/x", "open <tmp>/x"},
	{"uuid", "run 123e4567-e89b-12d3-a456-426614174000", "run 00000000-0000-4000-8000-000000000000", "run <uuid>"},
	{"container-id", "container 0123456789ab started", "container ffffffffffff started", "container <id> started"},
	{"run-id", "run_id=20261122-abcdef", "run_id=abcdef123", "run_id=<id>"},
	{"hostname", "host=build-1 ok", "host=build-2 ok", "host=<host> ok"},
	{"ephemeral-port", "listening on 127.0.0.1:43521", "listening on 127.0.0.1:60001", "listening on 127.0.0.1:<port>"},
	{"xdist-worker", "[gw0] PASSED t::a", "[gw3] PASSED t::a", "[<worker>] PASSED t::a"},
	{"xdist-worker", "[gw0] [ 50%] PASSED t.py::a", "[gw3] [100%] PASSED t.py::a", "[<worker>] PASSED t.py::a"},
	{"repo-root", "/repo/tests/test_x.py:3: AssertionError", "tests/test_x.py:3: AssertionError", "tests/test_x.py:3: AssertionError"},
	{"repo-root-itself", "rootdir: /repo", "rootdir: .", "rootdir: ."},
	{"given-name", "record run-1234 kept", "record run-1234 kept", "record <name> kept"},
	{"control-sequence", "\x1b[32mPASSED\x1b[0m t::a", "PASSED\x1b]0;title\x07 t::a", "PASSED t::a"},
	{"carriage-return", "a\r\nb\r", "a\nb", "a\nb"},
}

// kept are lines that no rule changes and that have no leftovers, except those in values.
var kept = []string{
	"tests/test_x.py::test_10_20_30 PASSED",
	"tests/test_x.py::test_clock[10:20:30] PASSED",
	"tests/test_x.py::test_wait[12ms] FAILED",
	"=== RUN   TestWait/2026-01-02T03:04:05Z",
	"ok 3 - waits 10ms",
	"not ok 4 - at 10:20:30",
	"pytest-8.1.1, python 3.11.2, plugin 1.2.3.4",
	"Final Validation Performance: 0.8196",
	"score 12 of 15, 3 passed, 1 skipped",
	"timeout must be 30s", "ValueError: timeout of 30s is too long", "waited at least 5 seconds", "elapsed=12ms, want 10ms", "TimeoutError: no answer within 0:00:30",
	"values[12] wrong", "t.py::test_a[12]", "t.py::test_a[12]: ok", "x[10:20:30] is a slice", "process 12 files", "processed 1500 rows",
	"wrote out-2026-01-02.csv", "2026-01-02.log",
	"E   assert 10 == 12", "E       AssertionError: took 12ms, not 13ms",
	"    x_test.go:12: got 10ms, want 20ms",
	"expected 2026-01-02T03:04:05Z, got 2026-01-02T03:04:06Z",
	"a  ", "\ttab ", "",
	"/root/.cache/x", "/home/ci/.cache/x", "/repository/x", "my/repo/x", "/repo.git",
	"color 0xff00ff, mask 0x1F", "sha256:" + "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
	"HEAD is now at 1234abc message", "12:34 is line and column", "aspect 16:9", "mac 10:20:30:40:50:60",
	"50% of 3 s-expressions", "report_10s.log 5s.txt", "1.2.3s", "version=1.10.2",
	"/tmp/output_v2", "/tmp/report.json", "tmpfile", "rapid 12", "id 12", "127.0.0.1:8080",
	"<time> and <duration> stay", "port 8080", "sha256 0f8d9ed026a14f859e86a34e95ed09b8", "token expected", "look at 1234567890",
	"[7] passed", "x = [7]", "[7]", "[7] ERROR", "process [7] items", "<time> INFO [7] done", "[7] <time> done", "<time> 3 errors", "<time> values[7] error", "<time> found 3 ERROR",
	"<time> main.py:12 INFO x", "thread 7 of 8", "worker 3 done", "1#1: x", "a == 7 == b", "line 3: 8 errors", "sum 140735340871681", "sum 1407353408716800", "0.140735340871680",
	"<time> INFO total: 140000000000001", "<time> INFO total 140000000000001", "INFO <time> total: 140000000000001", "<time> freed 42 - 140737488355328 of 9", "<time> INFO freed 42 - 140737488355328 of 9", "INFO <time> freed 42 - 140737488355328 of 9",
	"<time> sum (140000000000001)", "<time> INFO sum [140000000000001]", "waitpid: pid=-1", "assert pid > 0", "assert pid == 0", "x.py::t[pid-1] PASSED", "  pid=5, but expected pid=6", "\t[pid=5] got, expected [pid=6]",
	"t.py::test_a[7] values = [7]", "t.py::test_wait[12ms] ERROR at 10ms", "t.py::test_a 3 passed",
	"t.py::test_p[pid=12] PASSED", "test_a[2026-01-02T03:04:05Z] PASSED                  [ 50%]",
}

func normalizer(t testing.TB) *normalize.Normalizer {
	t.Helper()
	n, err := normalize.New(nil, normalize.Context{Roots: []string{"/repo"}, Names: []string{"run-1234"}, Cases: true})
	require.NoError(t, err)
	return n
}

func TestTextMakesRunsEqual(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range sameAfter {
		t.Run(c.rule+" "+c.want, func(t *testing.T) {
			n := normalizer(t)
			a := string(n.Text([]byte(c.a)))
			assert.Equal(t, c.want, a)
			for _, count := range n.Counts() {
				seen[count.Name] = seen[count.Name] || count.Count > 0
				if count.Name == c.rule && c.a != c.want {
					assert.Positive(t, count.Count, "the rule is counted")
				}
			}
			assert.Equal(t, c.want, string(n.Text([]byte(c.b))))
			assert.Equal(t, c.want, string(n.Text([]byte(a))), "idempotent")
			suspects, total := normalize.Detect([]byte(a), nil)
			assert.Zero(t, total, "%v", suspects)
		})
	}
	for _, count := range normalizer(t).Counts() {
		assert.True(t, seen[count.Name], "no case for rule %s", count.Name)
	}
}

// values are lines of kept with values that look as if they change.
var values = map[string]int{
	"=== RUN   TestWait/2026-01-02T03:04:05Z":                     1,
	"not ok 4 - at 10:20:30":                                      1,
	"expected 2026-01-02T03:04:05Z, got 2026-01-02T03:04:06Z":     2,
	"t.py::test_p[pid=12] PASSED":                                 1,
	"<time> freed 42 - 140737488355328 of 9":                      1,
	"<time> INFO freed 42 - 140737488355328 of 9":                 1,
	"INFO <time> freed 42 - 140737488355328 of 9":                 1,
	"  pid=5, but expected pid=6":                                 2,
	"\t[pid=5] got, expected [pid=6]":                             2,
	"test_a[2026-01-02T03:04:05Z] PASSED                  [ 50%]": 1,
}

func TestTextKeepsWhatTestsSay(t *testing.T) {
	for _, line := range kept {
		n := normalizer(t)
		assert.Equal(t, line+"\n", string(n.Text([]byte(line+"\n"))))
		// A line that the rules keep can have leftovers; only the name of a test hides one.
		suspects, total := normalize.Detect([]byte(line), nil)
		assert.Equal(t, values[line], total, "%q: %v", line, suspects)
	}
	assert.Equal(t, "no line feed", string(normalizer(t).Text([]byte("no line feed"))))
	assert.Empty(t, normalizer(t).Text(nil))
}

func TestTextKeepsDifferences(t *testing.T) {
	n := normalizer(t)
	for _, c := range [][2]string{
		{"t.py::a PASSED", "t.py::a FAILED"}, {"a  \n", "a\n"}, {"pytest-8.1.1", "pytest-8.1.2"},
		{"3 passed in 0.1s", "4 passed in 0.1s"}, {"/root/.cache/x", "/home/ci/.cache/x"}, {"values[12]", "values[13]"},
		{"t.py::test_a[12]", "t.py::test_a[13]"}, {"timeout must be 30s", "timeout must be 31s"},
		{"bringing up nodes...\n..\n.F\n", "bringing up nodes...\n..\n..\n"}, {"bringing up nodes...\n..\n", "bringing up nodes...\n...\n"},
		{"[7] passed", "[8] passed"}, {"x = [7]", "x = [8]"}, {"03:04:05 [7] INFO got [7]", "03:04:05 [7] INFO got [8]"}, {"03:04:05 [7] INFO 7 ready", "03:04:05 [7] INFO 8 ready"},
		{"t.py::test_a[10ms] took 3ms", "t.py::test_a[11ms] took 3ms"}, {"t.py::test_a at 10:20:30, n=1", "t.py::test_a at 10:20:30, n=2"},
	} {
		assert.NotEqual(t, string(n.Text([]byte(c[0]))), string(n.Text([]byte(c[1]))))
	}
}

// TestLongLines: a line that would need too much memory goes on in further ones, visibly,
// and normalizing these again changes nothing.
func TestLongLines(t *testing.T) {
	for name, line := range map[string]string{
		"stamps":    strings.Repeat("2026-01-02 03:04:05 1s x ", 45_000),
		"no spaces": strings.Repeat("ab12ß", 200_000),
		"grows":     strings.Repeat("1s ", 349_000),
		"returns":   strings.Repeat("50%\r", 270_000),
	} {
		t.Run(name, func(t *testing.T) {
			n := normalizer(t)
			once := n.Text([]byte(line + "\nend\n"))
			assert.True(t, bytes.HasSuffix(once, []byte("\nend\n")))
			assert.Contains(t, string(once), "\n")
			for part := range bytes.Lines(once) {
				assert.LessOrEqual(t, len(part), 1<<20)
			}
			if name != "returns" {
				assert.Contains(t, string(once), "<line goes on>\n")
			}
			assert.True(t, bytes.Equal(once, n.Text(once)), "idempotent")
		})
	}
}

// TestSlowestTests: which tests were the slowest changes from run to run.
func TestSlowestTests(t *testing.T) {
	const pytest = "== 3 passed ==\n============================= slowest 3 durations ==============================\n%s3 passed in 0.12s\n0.03s call     x.py::y\n"
	want := "== 3 passed ==\n============================= slowest 3 durations ==============================\n<slowest tests>\n3 passed in <duration>\n<duration> call     x.py::y\n"
	for _, list := range []string{
		"0.02s call     t.py::test_b\n0.01s setup    t.py::test_a\n0.01s teardown t.py::test_a[0.5s x]\n",
		"0.01s call     t.py::test_a\n\n(2 durations < 0.005s hidden.  Use -vv to show these durations.)\n",
		"\n(3 durations < 0.005s hidden.  Use -vv to show these durations.)\n",
	} {
		n := normalizer(t)
		once := string(n.Text(fmt.Appendf(nil, pytest, list)))
		require.Equal(t, want, once)
		require.Equal(t, want, string(n.Text([]byte(once))))
	}
	const unittest = "..\nSlowest test durations\n----------------------------------------------------------------------\n%s\n----------------------------------------------------------------------\nRan 2 tests in 0.1s\n"
	for _, list := range []string{"0.030s     test_a (m.T.test_a)\n0.020s     test_b (m.T.test_b)\n", "(durations < 0.001s were hidden; use -v to show these durations)\n"} {
		require.Equal(t, "..\nSlowest test durations\n<slowest tests>\nRan 2 tests in <duration>\n", string(normalizer(t).Text(fmt.Appendf(nil, unittest, list))))
	}
	require.Equal(t, "slowest 3 durations\n<duration> call     x.py::y", string(normalizer(t).Text([]byte("slowest 3 durations\n0.03s call     x.py::y"))), "no list")
}

// TestProgress: the letters of tests that ran in parallel come in another order each time, and their
// number stays.
func TestProgress(t *testing.T) {
	for name, c := range map[string]struct {
		logs []string
		want string
	}{
		"quiet": {[]string{"bringing up nodes...\nbringing up nodes...\n\n.s.x\n..\n5 passed in 0.1s\n", "bringing up nodes...\nbringing up nodes...\n\nx.\n..s.\n5 passed in 0.2s\n"},
			"bringing up nodes...\nbringing up nodes...\n\n<progress> 4 of \".\", 1 of \"s\", 1 of \"x\"\n5 passed in <duration>\n"},
		"new words": {[]string{"created: 2/2 workers\n2 workers [3 items]\n\n...   [3/3]\n", "created: 2/2 workers\n2 workers [3 items]\n\n.. [2/3]\n.    [3/3]\n"},
			"created: 2/2 workers\n2 workers [3 items]\n\n<progress> 3 of \".\"\n"},
		"a crash": {[]string{"gw0 [3] / gw1 [3]\n\n.F[gw1] node down: x\n\nreplacing crashed worker gw1\nF\nend\n", "gw0 [3] / gw1 [3]\n\n[gw0] node down: x\n\nreplacing crashed worker gw0\nF.F\nend\n"},
			"gw0 [3] / gw1 [3]\n\n[<worker>] node down: x\n\nreplacing crashed worker <worker>\n<progress> 1 of \".\", 2 of \"F\"\nend\n"},
		"at the end": {[]string{"bringing up nodes...\n..\n.", "bringing up nodes...\n.\n.."}, "bringing up nodes...\n<progress> 3 of \".\""},
	} {
		t.Run(name, func(t *testing.T) {
			for _, log := range append(c.logs, c.want) {
				require.Equal(t, c.want, string(normalizer(t).Text([]byte(log))))
			}
		})
	}
	for _, kept := range []string{"..F\n...\n", "bringing up nodes...\ntext\n..F\n", "more bringing up nodes...\n..F\n"} {
		require.Equal(t, kept, string(normalizer(t).Text([]byte(kept))))
	}
	n, err := normalize.New(nil, normalize.Context{})
	require.NoError(t, err)
	const unknown = "2 workers [8 items]\n...F....\n"
	require.Equal(t, unknown, string(n.Text([]byte(unknown))), "nothing else says which test failed")
}

func TestRulesOfAWish(t *testing.T) {
	n, err := normalize.New([]evidence.Rule{{Name: "build", Pattern: `build (\w+)-\d+`, Replace: "build $1-<n>"}}, normalize.Context{})
	require.NoError(t, err)
	assert.Equal(t, "build x-<n> in <duration>\n", string(n.Text([]byte("build x-17 in 3s\n"))))
	assert.Contains(t, n.Counts(), evidence.RuleCount{Name: "build", Count: 1})

	for want, rules := range map[string][]evidence.Rule{
		"no name":          {{Pattern: "a"}},
		"taken":            {{Name: "clock", Pattern: "a"}},
		"empty text":       {{Name: "x", Pattern: "a*"}},
		"matches the patt": {{Name: "x", Pattern: "a+", Replace: "aa"}},
		"line feed":        {{Name: "x", Pattern: "a", Replace: "\n"}},
		"pattern: error":   {{Name: "x", Pattern: "(", Replace: ""}},
		"more than 1000":   {{Name: "x", Pattern: strings.Repeat("a", 1001)}},
		"more than 200":    slices.Repeat([]evidence.Rule{{Name: "x", Pattern: "a"}}, 201),
	} {
		_, err := normalize.New(rules, normalize.Context{})
		assert.ErrorContains(t, err, want)
	}
	_, err = normalize.New([]evidence.Rule{{Name: "x", Pattern: "a"}, {Name: "x", Pattern: "b"}}, normalize.Context{})
	assert.ErrorContains(t, err, "taken")
}

func TestBuiltinRulesHaveUniqueNames(t *testing.T) {
	names := map[string]bool{}
	for _, r := range normalizer(t).Counts() {
		assert.False(t, names[r.Name], r.Name)
		names[r.Name] = true
	}
}

func TestRoots(t *testing.T) {
	n, err := normalize.New(nil, normalize.Context{Roots: []string{"/a", "/a/b/", "/", "rel"}})
	require.NoError(t, err)
	assert.Equal(t, "x c/x . / /ab rel ./\n", string(n.Text([]byte("/a/b/x /a/c/x /a/b / /ab rel /a/\n"))))
}

func TestDetect(t *testing.T) {
	for detector, lines := range map[string][]string{
		"clock":   {"x-10:20:30", "at10:20:30", "time: 9:41"},
		"epoch":   {"the time is 1700000000", "now 1700000000123", "started at 1700000000", "epoch 1700000000"},
		"address": {"ptr 0x123456", "x0x12345678", "id=140234123412341"},
		"uuid":    {"x_123e4567-e89b-12d3-a456-426614174000_y", "uuid=123e4567e89b12d3a456426614174000"},
		"token":   {"token 0f8d9ed026a14f859e86a34e95ed09b8", "nonce=0f8d9ed026a14f85"},
		"port":    {"port 43211", "listening, Port: 50000"},
		"control": {"\x1bx"},
		"pid":     {"pid -> 7", "child pid 7", "pid: 7", "handled by 140735340871680", "pid -> 123", "process_id (4711", "INFO gunicorn[4711]: booted"},
		"tmp":     {"/tmp/a1b2c3d4", "mkdtemp gave tmpa1b2c3d4", "/tmp/x/../go-build1234567"},
	} {
		for _, line := range lines {
			suspects, total := normalize.Detect([]byte("fine\n"+line+"\n"), nil)
			require.Equal(t, 1, total, "%s: %v", line, suspects)
			assert.Equal(t, detector, suspects[0].Detector, line)
			assert.Equal(t, 2, suspects[0].Line)
			_, total = normalize.Detect([]byte(line), []string{"(", regexp.QuoteMeta(suspects[0].Text)})
			assert.Zero(t, total, "allowed")
		}
	}
	suspects, total := normalize.Detect([]byte(strings.Repeat("x-10:20:30\n", 1000)), nil)
	assert.Len(t, suspects, 100)
	assert.Equal(t, 1000, total)
}

func BenchmarkText(b *testing.B) {
	text := benchLog()
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		normalizer(b).Text(text)
	}
}

func BenchmarkDetect(b *testing.B) {
	text := benchLog()
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		normalize.Detect(text, nil)
	}
}

// benchLog is a log of 30 MB, with more to replace than most have.
func benchLog() []byte {
	var text bytes.Buffer
	for i := 0; text.Len() < 30<<20; i++ {
		_, _ = fmt.Fprintf(&text, "tests/test_a.py::test_b[%d] PASSED   [ 50%%]\n2026-01-02 03:04:05,123 INFO worker %d did 12 things in 0.34s\nplain words of a log that says nothing\nok  \tpkg%d\t0.012s\n", i, i, i)
	}
	return text.Bytes()
}
