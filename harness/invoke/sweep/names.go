package sweep

// The names in the folder of a sweep, and in that of a run.
const (
	// ManifestName is the file that a sweep ends with.
	ManifestName = "sweep_manifest.json"
	// DefinitionName is the file that says what the sweep is.
	DefinitionName = "sweep.json"
	// RunsName is the folder of the folders of the runs.
	RunsName = "runs"
	// SpecName is the spec of a run, OutputName the folder that its tool fills.
	SpecName, OutputName = "spec.json", "output"
	// RunName says how a run ended; a run without it has not ended.
	RunName = "run.json"
	// StdoutName and StderrName are what the tool printed.
	StdoutName, StderrName = "stdout.log", "stderr.log"
	// toolManifest is the artifact whose hash the sweep's manifest has.
	toolManifest = "manifest.json"
)
