package evaluate

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// SubsampleInstruction is what an agent is told to make runs faster while it
// refines a script (EX-017), with two places for the limit.
const SubsampleInstruction = "If there are more than {limit} training samples, you must subsample to {limit} for a faster run."

// SubsampleInstructionFor fills in the limit of a config (EX-018).
func SubsampleInstructionFor(config PipelineConfig) string {
	return strings.ReplaceAll(SubsampleInstruction, "{limit}", strconv.Itoa(config.SubsampleLimit))
}

// SubsampleRemovalRequest asks an agent to remove what [SubsampleInstruction]
// added, before the final run (EX-019). It holds the whole script, unchanged.
func SubsampleRemovalRequest(solution SolutionScript) string {
	return "Find all code in the following Python script that subsamples the training data, and remove it, " +
		"so that the script trains on all samples. Keep everything else as it is. Return the full script.\n\n" +
		fenced(solution.Content)
}

// SubsampleExtractionRequest asks an agent to name the block of code that
// subsamples (EX-020). It holds the whole script, unchanged.
func SubsampleExtractionRequest(solution SolutionScript) string {
	return "Identify the block of code in the following Python script that performs the subsampling of the training " +
		"data, and extract it. Return that block exactly as it stands in the script, and nothing else.\n\n" +
		fenced(solution.Content)
}

var backticks = regexp.MustCompile("`+")

// fenced puts a script into a Markdown code block whose fence is longer than any
// row of backticks in the script, which could otherwise end it.
func fenced(script string) string {
	fence := "```"
	for _, row := range backticks.FindAllString(script, -1) {
		if len(row) >= len(fence) {
			fence = row + "`"
		}
	}
	return fmt.Sprintf("%spython\n%s\n%s", fence, script, fence)
}
