package normalize

import (
	"sync"

	"github.com/evalbox/evalbox/harness/gate/evidence"
	"github.com/evalbox/evalbox/harness/gate/internal/logline"
)

// Parts of expressions.
const (
	months   = `(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)`
	weekdays = `(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)`
	date     = `(?:19|20)\d\d[-/](?:0[1-9]|1[0-2])[-/](?:0[1-9]|[12]\d|3[01])`
	fraction = `(?:[.,]\d{1,9})?`
	clock    = `(?:[01]\d|2[0-3]):[0-5]\d:(?:[0-5]\d|60)` + fraction
	zone     = `(?: ?(?:Z|UTC|GMT|[+-]\d\d:?\d\d)\b)?(?: (?:UTC|GMT|[A-Z]{3,4}T)\b)?`
	number   = `\d+(?:\.\d+)?(?:e[-+]?\d+)?`
	// temporary is where temporary files lie.
	temporary = `(?:/private)?(?:/tmp|/var/tmp|/dev/shm|/var/folders/\w\w/\w+/T)`
	// amount is a duration with its unit.
	amount = `(?:\d+h\d+m(?:` + number + `s)?|\d+m` + number + `s|` + number + `(?:s|ns|µs|μs|us|ms| ?(?:s|ns|µs|ms|msecs?|milliseconds?|secs?|seconds?|mins|minutes?|hours?)))\b`
)

var monthNames = literals("Jan ", "Feb ", "Mar ", "Apr ", "May ", "Jun ", "Jul ", "Aug ", "Sep ", "Oct ", "Nov ", "Dec ",
	"Jan/", "Feb/", "Mar/", "Apr/", "May/", "Jun/", "Jul/", "Aug/", "Sep/", "Oct/", "Nov/", "Dec/")

// builtin are the rules that always hold, in the order of their application.
var builtin = []rule{
	// What a terminal does not show.
	{Rule: evidence.Rule{Name: "carriage-return", Pattern: `\r`, Replace: "\n"}, need: never},
	{Rule: evidence.Rule{Name: "control-sequence", Pattern: logline.ControlPattern}, need: hasEscape},

	// Points in time.
	{Rule: evidence.Rule{Name: "timestamp-iso", Pattern: date + `(?:[Tt_ ]| at )(?:[01]\d|2[0-3]):[0-5]\d(?::(?:[0-5]\d|60))?` + fraction + zone + `(?: m=[+-]\d+\.\d+)?`, Replace: "<time>"},
		need: hasClock, left: wordBegins, right: wordEnds, keeps: true},
	{Rule: evidence.Rule{Name: "timestamp-compact", Pattern: `(?:19|20)\d\d(?:0[1-9]|1[0-2])(?:0[1-9]|[12]\d|3[01])T(?:[01]\d|2[0-3])[0-5]\d[0-5]\d` + fraction + `(?:Z|[+-]\d{4})?`, Replace: "<time>"},
		need: hasLong, any: literals("T"), left: wordBegins, right: wordEnds, keeps: true},
	{Rule: evidence.Rule{Name: "timestamp-rfc1123", Pattern: weekdays + `(?:[a-z]{3,6})?, \d{1,2}[ -]` + months + `[ -]\d{2,4} ` + clock + zone, Replace: "<time>"},
		need: hasClock, any: literals(", "), left: wordBegins, right: wordEnds, keeps: true},
	{Rule: evidence.Rule{Name: "timestamp-ctime", Pattern: weekdays + ` ` + months + ` [ \d]\d ` + clock + zone + `(?: \d{4})?`, Replace: "<time>"},
		need: hasClock, any: monthNames, left: wordBegins, right: wordEnds, keeps: true},
	{Rule: evidence.Rule{Name: "timestamp-syslog", Pattern: months + ` [ \d]\d ` + clock, Replace: "<time>"},
		need: hasClock, any: monthNames, left: wordBegins, right: wordEnds, keeps: true},
	{Rule: evidence.Rule{Name: "timestamp-http", Pattern: `\d\d/` + months + `/\d{4}:` + clock + zone, Replace: "<time>"},
		need: hasClock | hasSlash, any: monthNames, left: wordBegins, right: wordEnds, keeps: true},
	{Rule: evidence.Rule{Name: "timestamp-glog", Pattern: `^([IWEF])\d{4} ` + clock + ` +\d+ `, Replace: "$1<time> <pid> "},
		need: hasClock},
	{Rule: evidence.Rule{Name: "syslog-process", Pattern: `^<time> \S+ ([A-Za-z][\w./-]*)\[\d+\]:`, Replace: "<time> <host> $1[<pid>]:"},
		need: hasDigit | hasLabel, any: literals("<time> ")},
	{Rule: evidence.Rule{Name: "clock-12h", Pattern: `(?:0?[1-9]|1[0-2]):[0-5]\d(?::[0-5]\d)? ?[AaPp][Mm]`, Replace: "<time>"},
		need: hasClock, any: literals("am", "pm", "AM", "PM", "aM", "pM", "Am", "Pm"), left: stampBegins, right: stampEnds, keeps: true},
	{Rule: evidence.Rule{Name: "epoch", Pattern: `(?i)((?:\w*time(?:stamp)?|\w*stamp|\w*epoch|\w*date|\w+_(?:at|ts)|ts|now)["']?(?:=|: ?)["']?)1\d{9}(?:\.\d+|\d{3}|\d{6}|\d{9})?`, Replace: "$1<time>"},
		need: hasLong | hasLabel, left: wordBegins, right: wordEnds, keeps: true},

	// Durations, first those whose lines have a form of their own.
	{Rule: evidence.Rule{Name: "pytest-duration", Pattern: `((?:passed|failed|errors?|skipped|warnings?|deselected|xfailed|xpassed|reruns?|no tests ran) in )\d+\.\d+s(?: \((?:\d+ days?, )?\d+:\d\d:\d\d\))?`, Replace: "$1<duration>"},
		need: hasUnit, any: literals("d in ", "r in ", "s in ", "n in ", "g in "), right: wordEnds},
	{Rule: evidence.Rule{Name: "pytest-rule", Pattern: `^=+ (.* in <duration>) =+$`, Replace: "=== $1 ==="},
		any: literals(" in <duration>")},
	{Rule: evidence.Rule{Name: "slowest-duration", Pattern: `^\d+\.\d+s( +(?:call|setup|teardown) +| {4,}\w)`, Replace: "<duration>$1"},
		need: hasUnit},
	{Rule: evidence.Rule{Name: "unittest-duration", Pattern: `^(Ran \d+ tests? in )\d+\.\d+s`, Replace: "$1<duration>"},
		need: hasUnit, any: literals("Ran ")},
	{Rule: evidence.Rule{Name: "go-package-duration", Pattern: `^((?:ok  |FAIL)\t\S+\t)\d+\.\d+s`, Replace: "$1<duration>"},
		need: hasUnit, any: literals("\t")},
	{Rule: evidence.Rule{Name: "go-benchmark", Pattern: `^(Benchmark\S+\s+)\d+(\s+)\d+(?:\.\d+)? ns/op`, Replace: "$1<n>$2<duration>"},
		need: hasUnit, any: literals(" ns/op")},
	{Rule: evidence.Rule{Name: "prove-duration", Pattern: ` *\d+(?:\.\d+)? wallclock secs? \([^()]*\)`, Replace: " <duration>"},
		need: hasDigit, any: literals(" wallclock ")},
	{Rule: evidence.Rule{Name: "tap-duration", Pattern: `(# (?:time=|duration_ms )?)\d+(?:\.\d+)?(?:ms|s)?$`, Replace: "$1<duration>"},
		need: hasDigit, any: literals("# time=", "# duration_ms ")},
	{Rule: evidence.Rule{Name: "minutes", Pattern: `(\bTime: )\d\d:\d\d(?:\.\d+)?`, Replace: "$1<duration>"},
		need: hasClock, any: literals("Time: "), right: stampEnds, keeps: true},
	{Rule: evidence.Rule{Name: "bracketed-duration", Pattern: `\(` + amount + `\)`, Replace: "(<duration>)"},
		need: hasUnit, any: literals(" (", "\t("), left: spaced},
	{Rule: evidence.Rule{Name: "named-duration", Pattern: `(?i)(\w*(?:duration|elapsed)(?:_?(?:ns|us|ms|secs?|seconds|time))?["']?(?:=|: ?)["']?)` + number + `(?: ?(?:ns|us|µs|ms|s|secs?|seconds?)\b)?`, Replace: "$1<duration>"},
		need: hasDigit | hasLabel, any: literals("uration", "lapsed", "URATION", "LAPSED"), left: wordBegins, right: wordEnds, keeps: true},
	{Rule: evidence.Rule{Name: "duration", Pattern: amount, Replace: "<duration>"},
		need: hasUnit, left: amountBegins, right: stampEnds, keeps: true},

	// What is neither a point in time nor a duration for sure.
	{Rule: evidence.Rule{Name: "clock", Pattern: clock, Replace: "<time>"},
		need: hasClock, left: stampBegins, right: stampEnds, keeps: true},
	{Rule: evidence.Rule{Name: "hours", Pattern: `\d{1,3}:[0-5]\d:[0-5]\d(?:\.\d+)?`, Replace: "<duration>"},
		need: hasClock, left: stampBegins, right: stampEnds, keeps: true},

	// Processes and memory.
	{Rule: evidence.Rule{Name: "pid", Pattern: `(?i)(\b(?:p?pid|tid|process[ _-]id|thread[ _-]id)["']?(?: ?[=:#] ?| is | ))\d+`, Replace: "$1<pid>"},
		need: hasDigit, any: literals("pid", "PID", "Pid", "tid", "TID", "rocess", "hread"), right: wordEnds, keeps: true},
	{Rule: evidence.Rule{Name: "process", Pattern: `\b([Pp]rocess )\d+( (?:exited|ended|finished|started|stopped|terminated|died|crashed|killed|was|is|has|got|received)\b|[\])}:,;.]|$)`, Replace: "$1<pid>$2"},
		need: hasDigit, any: literals("rocess ")},
	{Rule: evidence.Rule{Name: "goroutine", Pattern: `\b(goroutine )\d+`, Replace: "$1<n>"},
		need: hasDigit, any: literals("goroutine "), right: wordEnds},
	{Rule: evidence.Rule{Name: "address-of", Pattern: `( at )0x[0-9a-fA-F]{6,16}`, Replace: "$1<address>"},
		need: hasHex, right: wordEnds},
	{Rule: evidence.Rule{Name: "address", Pattern: `0x[0-9a-fA-F]{8,16}`, Replace: "<address>"},
		need: hasHex, left: wordBegins, right: wordEnds, keeps: true},

	// Temporary paths.
	{Rule: evidence.Rule{Name: "tmp-pytest", Pattern: temporary + `/pytest-of-[^/\s'"]+/pytest-(?:\d+|current)(?:/popen-gw\d+)?`, Replace: "<tmp>"},
		need: hasSlash, any: literals("/pytest-of-"), left: pathBegins, right: wordEnds},
	{Rule: evidence.Rule{Name: "tmp-python", Pattern: temporary + `/tmp[a-z0-9_]{8}`, Replace: "<tmp>"},
		need: hasSlash, any: literals("/tmp"), left: pathBegins, right: wordEnds},
	{Rule: evidence.Rule{Name: "tmp-mktemp", Pattern: temporary + `/tmp\.[A-Za-z0-9]{6,12}`, Replace: "<tmp>"},
		need: hasSlash, any: literals("/tmp."), left: pathBegins, right: wordEnds},
	{Rule: evidence.Rule{Name: "tmp-go", Pattern: temporary + `/(?:go-(?:build|link|run|tool)[\w-]*\d+|(?:Test|Benchmark|Fuzz|Example)[^/\s'"]*\d{6,}(?:/\d{3})?)`, Replace: "<tmp>"},
		need: hasSlash | hasDigit, any: literals("/go-", "/Test", "/Benchmark", "/Fuzz", "/Example"), left: pathBegins, right: wordEnds},

	// Names of machines, runs and workers.
	{Rule: evidence.Rule{Name: "uuid", Pattern: `[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}`, Replace: "<uuid>"},
		need: hasDashes, left: wordBegins, right: wordEnds, keeps: true},
	{Rule: evidence.Rule{Name: "container-id", Pattern: `(?i)(\bcontainer(?:[ _-]?id)?["']?(?:=|: ?| )["']?)(?:[0-9a-f]{64}|[0-9a-f]{12})`, Replace: "$1<id>"},
		any: literals("ontainer", "ONTAINER"), right: wordEnds},
	{Rule: evidence.Rule{Name: "run-id", Pattern: `(?i)(\brun[ _-]?id["']?(?:=|: ?)["']?)[a-z0-9][\w-]{5,}`, Replace: "$1<id>"},
		need: hasLabel, any: literals("run", "Run", "RUN")},
	{Rule: evidence.Rule{Name: "hostname", Pattern: `(?i)(\b(?:host=|hostname["']?(?:=|: ?))["']?)[a-z0-9][\w.-]*`, Replace: "$1<host>"},
		need: hasLabel, any: literals("host", "Host", "HOST"), keeps: true},
	{Rule: evidence.Rule{Name: "ephemeral-port", Pattern: `((?:127\.0\.0\.1|0\.0\.0\.0|localhost|\[::1?\]):)(?:3[2-9]\d{3}|[45]\d{4}|6[0-5]\d{3})`, Replace: "$1<port>"},
		need: hasDigit | hasLabel, any: literals("127.0.0.1:", "0.0.0.0:", "localhost:", "[::]:", "[::1]:"), left: wordBegins, right: wordEnds, keeps: true},
	{Rule: evidence.Rule{Name: "xdist-worker", Pattern: `\[gw\d+\](?: \[ *\d+%\])?`, Replace: "[<worker>]"},
		need: hasDigit, any: literals("[gw"), left: spaced},
}

// compiled are the built-in rules, made ready once.
var compiled = sync.OnceValue(func() []rule {
	all := make([]rule, 0, len(builtin))
	for _, r := range builtin {
		all = append(all, r.compiled())
	}
	return all
})

// never is a feature that no line has: the rule is carried out elsewhere.
const never feature = 1 << 15

// Builtin returns the rules that always hold, in the order of their application. Beside
// their expressions they test what stands before and after a match, and most of them
// leave lines with names of tests and values of assertions alone.
func Builtin() []evidence.Rule {
	all := make([]evidence.Rule, 0, len(builtin))
	for _, r := range builtin {
		all = append(all, r.Rule)
	}
	return all
}
