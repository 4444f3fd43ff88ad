// Package gpu finds out which GPUs there are and lends them to runs.
//
// [DetectGPUInfo] and [Probe] ask nvidia-smi. A [Manager] lends GPUs by file
// locks in a folder, so that any number of processes on one host never share a
// GPU unless they are told to. It knows nothing of containers: what a dead holder
// may have left running is asked through a hook.
//
// What nvidia-smi prints is bounded and checked. An error of the driver, which it
// also prints to stdout, is never taken for a GPU.
package gpu
