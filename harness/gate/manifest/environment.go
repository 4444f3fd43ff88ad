package manifest

import (
	"maps"

	"github.com/evalbox/evalbox/harness/gate/evidence"
)

// What every gate has in its environment, unless the wish says otherwise (RT-05).
const (
	locale   = "C.UTF-8"
	timezone = "UTC"
	hashSeed = "0"
	// epoch is 1980-01-01: the first day that archives of every kind can hold.
	epoch = "315532800"
)

// environment is the fixed environment with that of the wish. package sandbox adds what
// it sets for every run.
func environment(wished map[string]string) evidence.EnvPolicy {
	vars := map[string]string{
		"CI": "true", "LANG": locale, "LC_ALL": locale, "TZ": timezone, "SOURCE_DATE_EPOCH": epoch,
		"NO_COLOR": "1", "TERM": "dumb", "PYTHONDONTWRITEBYTECODE": "1", "PYTHONHASHSEED": hashSeed,
	}
	maps.Copy(vars, wished)
	return evidence.EnvPolicy{Vars: vars, Timezone: vars["TZ"], Locale: vars["LC_ALL"], HashSeed: vars["PYTHONHASHSEED"]}
}
