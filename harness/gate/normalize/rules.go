package normalize

import (
	"bytes"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// pattern is an expression with hints: every line that matches contains one of them,
// compared in the form of [shape]. They save most lines from the expression, because Go's
// engine is slow where an expression does not begin with a literal text.
type pattern struct {
	*regexp.Regexp
	hints [][]byte
}

// compile takes the hints joined by "|"; none for an expression that is always tried.
func compile(hints, expression string) pattern {
	p := pattern{Regexp: regexp.MustCompile(expression)}
	if hints != "" {
		p.hints = bytes.Split(shape(nil, []byte(hints)), []byte("|"))
	}
	return p
}

func (p pattern) mayMatch(shape []byte) bool {
	return len(p.hints) == 0 || slices.ContainsFunc(p.hints, func(hint []byte) bool { return bytes.Contains(shape, hint) })
}

// shape appends a line to dst with its ASCII letters in lower case and its digits as 0.
func shape(dst, line []byte) []byte {
	dst = append(dst, line...)
	for i, b := range dst {
		switch {
		case 'A' <= b && b <= 'Z':
			dst[i] = b + 'a' - 'A'
		case '0' <= b && b <= '9':
			dst[i] = '0'
		}
	}
	return dst
}

// rule replaces the matches of a pattern.
type rule struct {
	name, replace string
	pattern
	// except match lines that the rule does not change: [tested], [compared] or none.
	except []pattern
	// leads says that the rule also changes the beginning of such a line.
	leads bool
	// split says that text after the name of a test is treated as a line of its own.
	split bool
}

func always(name, hints, expression, replace string) rule {
	return rule{name: name, replace: replace, pattern: compile(hints, expression)}
}

// unlessTested is a rule that keeps the names of tests and the values of assertions. The
// time at the beginning of a line of a log is not a value of it.
func unlessTested(name, hints, expression, replace string) rule {
	return rule{name: name, replace: replace, pattern: compile(hints, expression), except: tested(), leads: true}
}

// unlessCompared is a rule for durations. A duration in the text of a failure or of a
// demand ("timeout must be 30s") is a result.
func unlessCompared(name, hints, expression, replace string) rule {
	return rule{name: name, replace: replace, pattern: compile(hints, expression), except: compared()}
}

// testName is the name of a test that its runner prints before it starts the test, so that the
// first line of the test comes after it: pytest with -sv, unittest with -v, and libtest.
var testName = sync.OnceValue(func() pattern {
	return compile(".py::| ... ", `^(?:\S+\.py(?:::[^\s\[]+)+(?:\[.*?\])? |\w+ \([\w.]+\) \.\.\. |test \S+ \.\.\. )`)
})

var tested = sync.OnceValue(func() []pattern {
	return []pattern{
		compile("", `^[ \t]*(?:E   |>   |=== |--- |not ok|ok [\d-]|[✓✔√✗✖×●]|FAIL: |ERROR: |FAILED |ERROR )`),
		compile("assert|.py::|::test|] ", `AssertionError|assert[ (]|\.py::|::[tT]est|\] (?:PASSED|FAILED|ERROR|SKIPPED|XFAIL|XPASS)`),
		compile("xpected", `xpected.*(?:got|actual|eceived|but| to )|(?:got|actual|eceived|but| to ).*xpected`),
		compile("want", `got.*want|want.*got`),
	}
})

var compared = sync.OnceValue(func() []pattern {
	return append(tested(),
		compile("must|should|shall|cannot|want|expected|at |than|=", `\b(?:must|should|shall|cannot|want|expected|at least|at most|(?:more|less|longer|shorter|slower|faster) than)\b|[<>=!]=`),
		compile("error: |exception: |failure: |expired: ", `^[ \t]*(?:\w+\.)*[A-Z]\w*(?:Error|Exception|Failure|Expired): `))
})

// Parts of expressions.
const (
	months   = `(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)`
	weekdays = `(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)`
	date     = `(?:19|20)\d\d[-/](?:0[1-9]|1[0-2])[-/](?:0[1-9]|[12]\d|3[01])`
	fraction = `(?:[.,]\d{1,9})?`
	clock    = `(?:[01]\d|2[0-3]):[0-5]\d:(?:[0-5]\d|60)` + fraction
	zone     = `(?: ?(?:Z|UTC|GMT|[+-]\d\d:?\d\d)\b)?(?: (?:UTC|GMT|[A-Z]{3,4}T)\b)?`
	number   = `\d+(?:\.\d+)?(?:e[-+]?\d+)?`
	amount   = `\d+(?:h\d+m(?:` + number + `s)?|m` + number + `s|(?:\.\d+)?(?:e[-+]?\d+)?(?:us| ?(?:s|[nmµμ]s|msecs?|milliseconds?|secs?|seconds?|mins|minutes?|hours?)))\b`
	uuid     = `[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}`
	// Hints of several rules.
	clockHint = ":00"
	monthHint = "jan |feb |mar |apr |may |jun |jul |aug |sep |oct |nov |dec "
	// level is a level of a log, in the form of most loggers; ident is what glibc calls a thread.
	level = `(?:TRACE|DEBUG|INFO|NOTICE|LOG|WARN(?:ING)?|ERROR|CRITICAL|FATAL|PANIC|ALERT|EMERG)\b`
	ident = `1[34]\d{13}\b`
	// between is what separates the fields of a line of a log: a space or a mark.
	space   = `[ \t]+`
	mark    = `[ \t]*[|-][ \t]+`
	between = `(?:` + mark + `|` + space + `)`
	// Fields of a line of a log.
	levelField = `\[?` + level + `\]?:?`
	timeField  = `\[?<time>\]?`
	wordField  = `\[?[A-Za-z_][\w.-]*\]?`
	// temporary is where temporary files are.
	temporary = `(?:/private)?(?:/tmp|/var/tmp|/dev/shm|/var/folders/\w\w/\w+/T)`

	// Places before a match, as the first group: not in an index, a path or a number
	// (stampStart), a number on its own (amountStart), a path (pathStart), after a space.
	stampStart  = `((?:^|[^\w:./\[-])\[?)`
	amountStart = `((?:^|[ \t(=:,"<>~+|])\[?)`
	pathStart   = `(^|[^\w./-])`
	spaceStart  = `(^|[ \t])`
	// stampEnd is the place after a match, as the second group.
	stampEnd = `($|[^\w:.-]|[.-](?:\W|$))`
)

// builtin are the rules that always apply, in this order.
var builtin = sync.OnceValue(func() []rule {
	all := []rule{
		// Points in time.
		unlessTested("timestamp-iso", clockHint, `\b`+date+`(?:[Tt_ ]| at )(?:[01]\d|2[0-3]):[0-5]\d(?::(?:[0-5]\d|60))?`+fraction+zone+`(?: m=[+-]\d+\.\d+)?\b`, "<time>"),
		unlessTested("timestamp-compact", "t000000", `\b(?:19|20)\d\d(?:0[1-9]|1[0-2])(?:0[1-9]|[12]\d|3[01])T(?:[01]\d|2[0-3])[0-5]\d[0-5]\d`+fraction+`(?:Z|[+-]\d{4})?\b`, "<time>"),
		unlessTested("timestamp-rfc1123", ", ", `\b`+weekdays+`(?:[a-z]{3,6})?, \d{1,2}[ -]`+months+`[ -]\d{2,4} `+clock+zone+`\b`, "<time>"),
		unlessTested("timestamp-day-first", clockHint, `\b(?:0?[1-9]|[12]\d|3[01])[ -]`+months+`(?:[ -]\d{4})? `+clock+zone+`\b`, "<time>"),
		unlessTested("timestamp-ctime", monthHint, `\b`+weekdays+` `+months+` [ \d]\d `+clock+zone+`(?: \d{4})?\b`, "<time>"),
		unlessTested("timestamp-syslog", monthHint, `\b`+months+` [ \d]\d `+clock+`\b`, "<time>"),
		unlessTested("timestamp-http", "/0000:", `\b\d\d/`+months+`/\d{4}:`+clock+zone+`\b`, "<time>"),
		always("timestamp-glog", clockHint, `^([IWEF])\d{4}(?:\d{4})? (?:`+clock+`|00:00:\d{10}\.\d{6}) +\d+ `, "$1<time> <pid> "),
		always("timestamp-chromium", ":0000/000000", `^\[\d+:\d+:\d{4}/\d{6}(?:\.\d+)?:([A-Z]+\d?:)`, "[<pid>:<pid>:<time>:$1"),
		always("syslog-process", "<time> ", `^<time> \S+ ([A-Za-z][\w./-]*)\[\d+\]:`, "<time> <host> $1[<pid>]:"),
		always("process-prefix", "]: ", `^((?:\S*<time>\S* +)?[A-Za-z][\w./-]*)\[\d+\]: `, "$1[<pid>]: "),
		unlessTested("clock-12h", clockHint, stampStart+`(?:0?[1-9]|1[0-2]):[0-5]\d(?::[0-5]\d)? ?[AaPp][Mm]`+stampEnd, "$1<time>$2"),
		unlessTested("epoch", "0000000000", `(?i)\b((?:\w*time(?:stamp)?|\w*stamp|\w*epoch|\w*date|\w+_(?:at|ts)|ts|now)["']?(?:=|: ?)["']?)1\d{9}(?:\.\d+|\d{3}|\d{6}|\d{9})?\b`, "$1<time>"),

		// Durations, first those in lines with a form of their own.
		always("pytest-duration", "passed in |failed in |error in |errors in |skipped in |warning in |warnings in |selected in |rerun in |reruns in |ran in ", `((?:passed|failed|errors?|skipped|warnings?|deselected|xfailed|xpassed|reruns?|no tests ran) in )\d+\.\d+s\b(?: \((?:\d+ days?, )?\d+:\d\d:\d\d\))?`, "$1<duration>"),
		always("pytest-rule", " in <duration>", `^=+ (.* in <duration>) =+$`, "=== $1 ==="),
		always("slowest-duration", "", `^\d+\.\d+s( +(?:call|setup|teardown) +| {4,}\w)`, "<duration>$1"),
		always("unittest-duration", "ran ", `^(Ran \d+ tests? in )\d+\.\d+s`, "$1<duration>"),
		always("go-package-duration", "\t", `^((?:ok  |FAIL)\t\S+\t)\d+\.\d+s`, "$1<duration>"),
		always("go-benchmark", " ns/op", `^(Benchmark\S+\s+)\d+(\s+)\d+(?:\.\d+)? ns/op`, "$1<n>$2<duration>"),
		always("prove-duration", " cpu)", ` *\d+(?:\.\d+)? (?:wallclock secs?|m?s) \([^()]* CPU\)`, " <duration>"),
		always("tap-duration", "# time=|# duration_ms ", `(# (?:time=|duration_ms ))\d+(?:\.\d+)?(?:ms|s)?$`, "$1<duration>"),
		unlessTested("minutes", "time: ", `(\bTime: )\d\d:\d\d(?:\.\d+)?`+stampEnd, "$1<duration>$2"),
		always("bracketed-duration", "s)|m)|e)|r)", spaceStart+`\(`+amount+`\)`, "$1(<duration>)"),
		unlessCompared("named-duration", `duration=|duration:|duration"|duration'|duration_|durationn|durationu|durationm|durations|durationt|elapsed`, `(?i)\b(\w*(?:duration|elapsed)(?:_?(?:ns|us|ms|secs?|seconds|time))?["']?(?:=|: ?)["']?)`+number+`(?: ?(?:ns|us|µs|ms|s|secs?|seconds?)\b)?\b`, "$1<duration>"),
		unlessCompared("duration", "0h|0m|0s|0n|0u|0e|0µ|0μ|0 h|0 m|0 s|0 n|0 µ|0 μ", amountStart+amount+stampEnd, "$1<duration>$2"),

		// Points in time or durations without a date or a unit.
		unlessTested("clock", clockHint, stampStart+clock+stampEnd, "$1<time>$2"),
		unlessCompared("hours", clockHint, stampStart+`\d{1,3}:[0-5]\d:[0-5]\d(?:\.\d+)?`+stampEnd, "$1<duration>$2"),

		// Processes, threads and memory. A number without a name is one of a process only at its place in
		// a line of a log: before the level, or in the form of one program. A message can begin with a
		// number of its own.
		always("log-process", "[0|(0", `^(\[?<time>\]?`+between+`(?:[A-Za-z_][\w.-]*(?:`+between+`)?)?[\[(])\d+(?:[:/]\d+)?((?:[:/ ][A-Za-z][\w-]*)?[\])]:?`+between+`(?:\S+@\S+ )?(?:\[(?i:`+level+`)|`+level+`|(?:info|debug|trace)\b))`, "$1<pid>$2"),
		always("log-process-bare", "<time>", `^(\[?<time>\]?`+between+`(?:[A-Za-z_][\w.-]* *[|-] +)?)\d+(?:`+between+`\d+)?(`+between+`\[?`+level+`(?:[\]:| \t]|$))`, "$1<pid>$2"),
		always("log-process-first", " <time> ", `^(\[?)\d+(\]?|:[A-Z]) (\[?<time>\]? (?:[.*#-] |\[?`+level+`))`, "$1<pid>$2 $3"),
		always("log-process-only", "[0", `^\[\d+\] (\[`+level+`\]|(?:INFO|DEBUG)\b)`, "[<pid>] $1"),
		always("log-process-thread", "000000000000000", `^(?:`+strings.Join([]string{
			// INFO <time> app 7 1407…
			`(` + levelField + space + timeField + space + wordField + space + `)\d+` + space,
			// INFO <time> 7 1407…, INFO <time> [7:1407…]
			`(` + levelField + space + timeField + space + `[\[(]?)(?:\d+(?:[:/]|` + space + `))?`,
			// <time> app INFO [7:1407…]
			`(` + timeField + between + `(?:` + wordField + between + `)?` + levelField + between + `[\[(])(?:\d+(?:[:/]|` + space + `))?`,
			// <time> - INFO - app - 7 - 1407…
			`((?:` + levelField + mark + `)?` + timeField + mark + `(?:` + wordField + mark + `){0,3})(?:\d+(?:[:/]|` + mark + `))?`,
		}, "|")+`)`+ident, "$1$2$3$4<pid>"),
		always("log-process-ruby", ", [<time> #", `^([A-Z], \[<time> #)\d+(\] +[A-Z]+ -- )`, "$1<pid>$2"),
		always("log-process-spring", " --- [", `^(<time> +`+level+` )\d+( --- \[)`, "$1<pid>$2"),
		always("log-process-nginx", "#0", `^(<time> \[[a-z]+\] )\d+#\d+: `, "$1<pid>#<pid>: "),
		always("log-process-haproxy", ") : ", `^(\[[A-Z]+\] +)(?:\d{3}/\d{6} )?\(\d+\) : `, "$1(<pid>) : "),
		unlessTested("pid", "pid|tid|process|thread", `(?i)(\b(?:p?pid|tid|process[ _-]id|thread[ _-]id)["']?(?: ?[=:#] ?| is | | ?[(\[]))\d+\b`, "$1<pid>"),
		always("pid-parent", "pid=<pid> parent=", `(\bpid=<pid> parent=)\d+\b`, "$1<pid>"),
		always("thread-sidekiq", "pid=<pid> tid=", `(\bpid=<pid> tid=)[0-9a-z]+\b`, "$1<pid>"),
		always("thread-java", " nid=", `(\btid=\S+ nid=)(?:0x[0-9a-f]+|\d+)\b`, "$1<pid>"),
		always("thread-rust", "threadid(|thread '", `(\bThreadId\(|\bthread '[^']*' \()\d+(\))`, "$1<pid>$2"),
		always("thread-ident", "thread|ident|started ", `(?i)(thread[\w-]*["']?[ =:#,(\[]{1,3}|\bident[ =:]{1,3}|\bstarted (?:daemon )?)`+ident, "$1<pid>"),
		always("process", "process ", `\b([Pp]rocess )\d+( (?:exited|ended|finished|started|stopped|terminated|died|crashed|killed|was|is|has|got|received)\b|[\])}:,;.]|$)`, "$1<pid>$2"),
		always("process-server", "process [", `(?i)\b((?:server|parent|child|reloader|worker|master|main) process )\[\d+\]`, "$1[<pid>]"),
		always("process-node", "(node:", spaceStart+`\(node:\d+\)`, "$1(node:<pid>)"),
		always("process-checker", "0==|0--", `^(==|--)\d+(==|--)( |[A-Z]|$)`, "$1<pid>$2$3"),
		always("process-shell", ": line ", `(: line \d+:) +\d+ ((?:Aborted|Alarm clock|Bus error|Floating point exception|Hangup|Illegal instruction|Killed|Quit|Segmentation fault|Terminated|Trace/breakpoint trap)\b)`, "$1 <pid> $2"),
		unlessTested("pool-worker", "worker-|threadpoolexecutor-|-thread-", `\b((?:Fork|Spawn|ForkServer)PoolWorker-|ThreadPoolExecutor-\d+_|pool-\d+-thread-|ForkJoinPool(?:-\d+|\.commonPool)-worker-)\d+\b`, "$1<n>"),
		always("goroutine", "goroutine ", `\b(goroutine )\d+\b`, "$1<n>"),
		always("address-of", " at 0x", `( at )0x[0-9a-fA-F]{6,16}\b`, "$1<address>"),
		unlessTested("address", "0x", `\b0x[0-9a-fA-F]{8,16}\b`, "<address>"),

		// Temporary paths.
		always("tmp-pytest", "/pytest-of-", pathStart+temporary+`/pytest-of-[^/\s'"]+/pytest-(?:\d+|current)(?:/popen-gw\d+)?\b`, "$1<tmp>"),
		always("tmp-python", "/tmp", pathStart+temporary+`/tmp[a-z0-9_]{8}\b`, "$1<tmp>"),
		always("tmp-mktemp", "/tmp.", pathStart+temporary+`/tmp\.[A-Za-z0-9]{6,12}\b`, "$1<tmp>"),
		always("tmp-go", "tmp/|shm/|/t/", pathStart+temporary+`/(?:go-(?:build|link|run|tool)[\w-]*\d+|(?:Test|Benchmark|Fuzz|Example)[^/\s'"]*\d{6,}(?:/\d{3})?)\b`, "$1<tmp>"),

		// Names of machines, runs and workers.
		unlessTested("uuid", "-", `\b`+uuid+`\b`, "<uuid>"),
		always("container-id", "container", `(?i)(\bcontainer(?:[ _-]?id)?["']?(?:=|: ?| )["']?)(?:[0-9a-f]{64}|[0-9a-f]{12})\b`, "$1<id>"),
		always("run-id", "run", `(?i)(\brun[ _-]?id["']?(?:=|: ?)["']?)[a-z0-9][\w-]{5,}`, "$1<id>"),
		unlessTested("hostname", "host", `(?i)(\b(?:host=|hostname["']?(?:=|: ?))["']?)[a-z0-9][\w.-]*`, "$1<host>"),
		unlessTested("ephemeral-port", "127.0.0.1:|0.0.0.0:|localhost:|[::", `((?:^|\W)(?:127\.0\.0\.1|0\.0\.0\.0|localhost|\[::1?\]):)(?:3[2-9]\d{3}|[45]\d{4}|6[0-5]\d{3})\b`, "$1<port>"),
		always("xdist-worker", "[gw", spaceStart+`\[gw\d+\](?: \[ *\d+(?:%|/\d+)\])?`, "$1[<worker>]"),
		always("xdist-crash", "worker", `\b(crashed worker |worker ')gw\d+\b`, "$1<worker>"),
	}
	for i := range all {
		all[i].split = true
	}
	return all
})
