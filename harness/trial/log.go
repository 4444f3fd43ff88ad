package trial

import "iter"

// A Log is the record of jobs in a directory:
//
//	index.jsonl                  one line for each result: job, verdict, reason, score, usage
//	jobs/ID/job.json             the job as it was asked for
//	jobs/ID/events.jsonl         what happened, as it happened
//	jobs/ID/result.json          the result, written atomically
//
// Several processes may write one log. A torn last line is left out. Everything can be read without an engine.
type Log struct{ dir string }

// OpenLog opens the log in dir, which is created if it is missing.
func OpenLog(dir string) (*Log, error) { panic("not yet") }

// Conclusive returns the last conclusive result of a key.
func (l *Log) Conclusive(key string) (Result, bool, error) { panic("not yet") }

// List returns the results in the order in which they were written, without Detail.
func (l *Log) List() iter.Seq2[Result, error] { panic("not yet") }

// Get returns the whole result of a job; of one that has none, the job with the verdict Inconclusive.
func (l *Log) Get(id string) (Result, error) { panic("not yet") }
