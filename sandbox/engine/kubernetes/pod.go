package kubernetes

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/engine/wire"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// Names in every pod.
const (
	mainContainer   = "main"
	porterContainer = "porter"
	// programsVolume has the programs of evalbox, spoolVolume what the streams print, lineVolume the
	// socket between both containers, and filesVolume the files of the run.
	programsVolume = "programs"
	spoolVolume    = "spool"
	lineVolume     = "line"
	filesVolume    = "files"
	// gpuClaim is the claim for GPUs of a device class.
	gpuClaim = "gpus"
)

// Paths in the containers.
const (
	programsDir = "/evalbox-programs"
	spoolDir    = "/evalbox-spool"
	lineDir     = "/evalbox-line"
	filesDir    = spec.VolumeDir
	claimsDir   = "/evalbox-claims"
	porterPath  = programsDir + "/porter"
	initPath    = programsDir + "/init"
	shmDir      = "/dev/shm"
)

const (
	// labelsAnnotation has all labels of evalbox and of the caller as JSON: labels of Kubernetes
	// are too short for them. nameAnnotation has the name that evalbox gave the container.
	labelsAnnotation = "evalbox.org/labels"
	nameAnnotation   = "evalbox.org/name"
	// volumeLabel marks the Jobs of runs whose files are copied.
	volumeLabel = "org.evalbox.files"
	queueLabel  = "kueue.x-k8s.io/queue-name"
)

const (
	// oomScore is the highest: a container may not lower the score that the kubelet gave it.
	oomScore = 1000
	// collection is how long after its deadline a pod still has its files.
	collection = time.Hour
	// lingering is how long the Job of a controller that died stays after its end.
	lingering = 24 * time.Hour
	// graceSeconds is how long a pod that the cluster stops may take to report and to hand over its
	// files.
	graceSeconds = 120
	// spoolBytes is how much of each stream the porter keeps.
	spoolBytes   = 128 << 20
	porterMemory = 128 << 20
	// portersShare is what the porter asks for, in bytes and thousandths of a processor.
	portersShare     = 24 << 20
	portersMilliCPUs = 10
)

var jobNames = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z0-9]([a-z0-9-]*[a-z0-9])?$`) })

// jobName is the name of the Job of a container: its own name, or, where Kubernetes does not accept
// that, a part of it with a hash.
func jobName(name string) string {
	if len(name) <= 63 && jobNames().MatchString(name) {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	plain := strings.Trim(regexp.MustCompile(`[^a-z0-9]+`).ReplaceAllString(strings.ToLower(name), "-"), "-")
	return strings.TrimRight(plain[:min(len(plain), 46)], "-") + "-" + hex.EncodeToString(sum[:])[:16]
}

// mount is one mount of the files of a run: a path of the volume, and where it is seen. Claim is another
// volume than that of the run, if it is not empty.
type mount struct {
	subPath, target string
	readOnly        bool
	claim           string
}

// mountsOf returns the mounts of a class, the outer ones first. The sources lie below the volume of
// the run, whose root is base.
func mountsOf(class spec.Class, sources engine.Sources, base string) ([]mount, error) {
	var mounts []mount
	add := func(role, target string, readOnly bool) error {
		source, ok := sources[role]
		if rel, inside := strings.CutPrefix(source, base+"/"); ok && inside {
			mounts = append(mounts, mount{subPath: rel, target: target, readOnly: readOnly})
			return nil
		}
		return fmt.Errorf("%w: %s, for %s: a pod has the files of its own volume alone", engine.ErrNoSource, source, target)
	}
	for _, bind := range class.Binds {
		if bind.Claim != nil {
			mounts = append(mounts, mount{subPath: bind.Claim.Path, target: bind.Target, readOnly: true, claim: bind.Claim.Name})
			continue
		}
		if err := add(bind.Role, bind.Target, bind.ReadOnly); err != nil {
			return nil, err
		}
	}
	for _, mask := range class.Masks {
		role := mask.Role
		if role == "" {
			if role = spec.RoleEmpty; mask.Dir {
				continue // an empty directory in memory
			}
		}
		if err := add(role, mask.Target, true); err != nil {
			return nil, err
		}
	}
	slices.SortStableFunc(mounts, func(a, b mount) int { return spec.ByDepth(a.target, b.target) })
	return mounts, nil
}

// plan is everything that a Job is made from.
type plan struct {
	config cluster
	class  spec.Class
	meta   engine.Meta
	mounts []mount
	// files says that the pod has a volume with the files of the run, of which the program may
	// write at most diskBytes.
	files     bool
	diskBytes int64
	// limit is how long the pod may exist at most; 0 if that is not known.
	limit time.Duration
	// imageVolume says that the cluster mounts images.
	imageVolume bool
	window      time.Duration
}

// job builds the Job of one container. It is pure.
func (p plan) job() (*batchv1.Job, error) {
	labels, err := json.Marshal(p.meta.Labels)
	if err != nil {
		return nil, err
	}
	uid, gid, err := userOf(p.class.User)
	if err != nil {
		return nil, err
	}
	annotations := map[string]string{labelsAnnotation: string(labels), nameAnnotation: p.meta.Name}
	own := map[string]string{spec.LabelManaged: "true"}
	if run := p.meta.Labels[spec.LabelRun]; run != "" {
		own[spec.LabelRun] = jobName(run)
	}
	if p.files {
		own[volumeLabel] = "true"
	}
	job := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: jobName(p.meta.Name), Namespace: p.config.Namespace, Labels: own, Annotations: annotations},
		Spec: batchv1.JobSpec{
			BackoffLimit: ptr.To[int32](0), Completions: ptr.To[int32](1), Parallelism: ptr.To[int32](1),
			TTLSecondsAfterFinished: ptr.To(int32(lingering.Seconds())),
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: own, Annotations: map[string]string{nameAnnotation: p.meta.Name}},
				Spec:       p.pod(uid, gid),
			},
		},
	}
	if p.limit > 0 {
		job.Spec.ActiveDeadlineSeconds = ptr.To(int64(math.Ceil(p.limit.Seconds())))
	}
	if p.config.Queue != "" {
		job.Labels = cloneWith(own, queueLabel, p.config.Queue)
		job.Spec.Suspend = ptr.To(true)
	}
	return job, nil
}

func cloneWith(labels map[string]string, name, value string) map[string]string {
	with := map[string]string{name: value}
	for key, each := range labels {
		with[key] = each
	}
	return with
}

func userOf(user string) (uid, gid int64, err error) {
	uidText, gidText, _ := strings.Cut(user, ":")
	uid, err = strconv.ParseInt(uidText, 10, 64)
	if err == nil {
		gid, err = strconv.ParseInt(gidText, 10, 64)
	}
	switch {
	case err != nil:
		return 0, 0, fmt.Errorf("the user %q is not uid:gid: %w", user, err)
	case uid == 0:
		return 0, 0, &policy.FieldError{Field: "user", Value: user, Rule: "is root, which the restricted profile of Kubernetes does not permit",
			Hint: "leave --user out"}
	}
	return uid, gid, nil
}

func (p plan) pod(uid, gid int64) corev1.PodSpec {
	image := p.class.Image.Digest
	restricted := &corev1.SecurityContext{
		AllowPrivilegeEscalation: ptr.To(false), ReadOnlyRootFilesystem: ptr.To(true), Privileged: ptr.To(false),
		RunAsNonRoot: ptr.To(true), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
	}
	programs := corev1.VolumeMount{Name: programsVolume, MountPath: programsDir, ReadOnly: true}
	porter := corev1.Container{
		Name: porterContainer, Image: image, ImagePullPolicy: corev1.PullIfNotPresent,
		Command:         []string{porterPath, "serve", spoolDir, lineDir, filesDir, p.window.String(), strconv.Itoa(spoolBytes)},
		SecurityContext: restricted, WorkingDir: "/",
		VolumeMounts: []corev1.VolumeMount{programs, {Name: spoolVolume, MountPath: spoolDir}, {Name: lineVolume, MountPath: lineDir}},
		Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: *resource.NewMilliQuantity(portersMilliCPUs, resource.DecimalSI), corev1.ResourceMemory: *bytesOf(portersShare)},
			Limits:   corev1.ResourceList{corev1.ResourceCPU: *resource.NewMilliQuantity(1000, resource.DecimalSI), corev1.ResourceMemory: *bytesOf(porterMemory)},
		},
	}
	main := corev1.Container{
		Name: mainContainer, Image: image, ImagePullPolicy: corev1.PullIfNotPresent,
		Command:         p.initCommand(),
		SecurityContext: restricted, WorkingDir: "/",
		VolumeMounts: []corev1.VolumeMount{programs, {Name: lineVolume, MountPath: lineDir, ReadOnly: true}},
		Resources:    p.resources(),
	}
	for _, pair := range p.class.Env {
		name, value, _ := strings.Cut(pair, "=")
		// The kubelet expands $(NAME).
		main.Env = append(main.Env, corev1.EnvVar{Name: name, Value: strings.ReplaceAll(value, "$", "$$")})
	}
	pod := corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever, Hostname: spec.HostName,
		AutomountServiceAccountToken: ptr.To(false), EnableServiceLinks: ptr.To(false),
		TerminationGracePeriodSeconds: ptr.To[int64](graceSeconds),
		SecurityContext: &corev1.PodSecurityContext{
			RunAsUser: &uid, RunAsGroup: &gid, RunAsNonRoot: ptr.To(true), SeccompProfile: p.config.seccomp(),
		},
		NodeSelector: p.config.NodeSelector, Tolerations: p.config.tolerations(), PriorityClassName: p.config.PriorityClass,
		Volumes: []corev1.Volume{
			emptyDir(spoolVolume, "", 3*spoolBytes),
			emptyDir(lineVolume, corev1.StorageMediumMemory, 1<<20),
		},
	}
	for _, name := range p.config.PullSecrets {
		pod.ImagePullSecrets = append(pod.ImagePullSecrets, corev1.LocalObjectReference{Name: name})
	}
	if p.class.Runtime != "" {
		pod.RuntimeClassName = ptr.To(p.class.Runtime)
	}
	p.addPrograms(&pod, restricted)
	p.addMemory(&pod, &main)
	if p.files {
		pod.Volumes = append(pod.Volumes, emptyDir(filesVolume, "", p.diskBytes))
		porter.VolumeMounts = append(porter.VolumeMounts, corev1.VolumeMount{Name: filesVolume, MountPath: filesDir})
		// The kubelet starts the next container when this returns. The files that it mounts must
		// be there.
		porter.Lifecycle = &corev1.Lifecycle{PostStart: &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{porterPath, "await", spoolDir}}}}
	}
	for i, m := range p.mounts {
		volume := filesVolume
		if m.claim != "" {
			volume = fmt.Sprintf("claim-%d", i)
			pod.Volumes = append(pod.Volumes, corev1.Volume{Name: volume, VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: m.claim, ReadOnly: true}}})
			if m.subPath != "" {
				whole := path.Join(claimsDir, volume)
				porter.VolumeMounts = append(porter.VolumeMounts, corev1.VolumeMount{Name: volume, MountPath: whole, ReadOnly: true})
				porter.Command = append(porter.Command, path.Join(whole, m.subPath))
			}
		}
		main.VolumeMounts = append(main.VolumeMounts, corev1.VolumeMount{Name: volume, SubPath: m.subPath, MountPath: m.target, ReadOnly: m.readOnly})
	}
	if p.claims() {
		pod.ResourceClaims = []corev1.PodResourceClaim{{Name: gpuClaim, ResourceClaimTemplateName: ptr.To(jobName(p.meta.Name))}}
	}
	pod.Containers = []corev1.Container{porter, main}
	return pod
}

// initCommand starts init with streams to the porter.
func (p plan) initCommand() []string {
	command := []string{porterPath, "join", lineDir, initPath}
	for _, path := range p.meta.Stat {
		command = append(command, "-s", path)
	}
	if p.meta.Witness != "" {
		command = append(command, "-w", p.meta.Witness)
	}
	return command
}

// addPrograms makes the programs of evalbox appear in the pod.
func (p plan) addPrograms(pod *corev1.PodSpec, restricted *corev1.SecurityContext) {
	if p.imageVolume {
		pod.Volumes = append(pod.Volumes, corev1.Volume{Name: programsVolume, VolumeSource: corev1.VolumeSource{
			Image: &corev1.ImageVolumeSource{Reference: p.config.Programs, PullPolicy: corev1.PullIfNotPresent}}})
		return
	}
	pod.Volumes = append(pod.Volumes, emptyDir(programsVolume, "", 64<<20))
	small := corev1.ResourceList{corev1.ResourceCPU: *resource.NewMilliQuantity(1000, resource.DecimalSI), corev1.ResourceMemory: *bytesOf(porterMemory)}
	pod.InitContainers = []corev1.Container{{
		Name: programsVolume, Image: p.config.Programs, ImagePullPolicy: corev1.PullIfNotPresent,
		Command: []string{"/porter", "install", programsDir}, SecurityContext: restricted,
		VolumeMounts: []corev1.VolumeMount{{Name: programsVolume, MountPath: programsDir}},
		Resources:    corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceMemory: *bytesOf(portersShare)}, Limits: small},
	}}
}

// addMemory adds the file systems in memory. Their size counts as memory of the program.
func (p plan) addMemory(pod *corev1.PodSpec, main *corev1.Container) {
	add := func(name, target string, size int64, readOnly bool) {
		pod.Volumes = append(pod.Volumes, emptyDir(name, corev1.StorageMediumMemory, size))
		main.VolumeMounts = append(main.VolumeMounts, corev1.VolumeMount{Name: name, MountPath: target, ReadOnly: readOnly})
	}
	for i, t := range p.class.Tmpfs {
		add(fmt.Sprintf("memory-%d", i), t.Target, t.SizeBytes, false)
	}
	if size := p.class.Cgroup.ShmBytes; size > 0 {
		add("shm", shmDir, size, false)
	}
	for i, mask := range p.class.Masks {
		if mask.Dir && mask.Role == "" {
			add(fmt.Sprintf("mask-%d", i), mask.Target, 4096, true)
		}
	}
}

func emptyDir(name string, medium corev1.StorageMedium, size int64) corev1.Volume {
	source := &corev1.EmptyDirVolumeSource{Medium: medium}
	if size > 0 {
		source.SizeLimit = bytesOf(size)
	}
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{EmptyDir: source}}
}

func bytesOf(n int64) *resource.Quantity { return resource.NewQuantity(n, resource.BinarySI) }

// resources are the limits of the program, and what it reserves: everything that it asked for, but for
// the processors, of which it may be a part.
func (p plan) resources() corev1.ResourceRequirements {
	list := corev1.ResourceList{
		corev1.ResourceMemory: *bytesOf(p.class.Cgroup.MemoryBytes),
		corev1.ResourceCPU:    *resource.NewMilliQuantity((p.class.Cgroup.NanoCPUs+999_999)/1_000_000, resource.DecimalSI),
	}
	if n := p.class.GPUs.Count; n > 0 && !p.claims() {
		list[corev1.ResourceName(p.config.GPUResource)] = *resource.NewQuantity(int64(n), resource.DecimalSI)
	}
	requests := maps.Clone(list)
	cpus := requests[corev1.ResourceCPU]
	requests[corev1.ResourceCPU] = *resource.NewMilliQuantity(max(1, int64(float64(cpus.MilliValue())*p.config.CPUShare)), resource.DecimalSI)
	all := corev1.ResourceRequirements{Requests: requests, Limits: list}
	if p.claims() {
		all.Claims = []corev1.ResourceClaim{{Name: gpuClaim}}
	}
	return all
}

// claims reports whether the pod gets its GPUs by a resource claim.
func (p plan) claims() bool { return p.class.GPUs.Count > 0 && p.config.GPUDeviceClass != "" }

// claimTemplate is what the cluster makes the claim of the pod from. The claim goes with the pod, and the
// template with the Job. It is pure.
func (p plan) claimTemplate(job *batchv1.Job) *resourcev1.ResourceClaimTemplate {
	owner := metav1.OwnerReference{APIVersion: batchv1.SchemeGroupVersion.String(), Kind: "Job", Name: job.Name, UID: job.UID}
	exactly := &resourcev1.ExactDeviceRequest{DeviceClassName: p.config.GPUDeviceClass,
		AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: int64(p.class.GPUs.Count)}
	return &resourcev1.ResourceClaimTemplate{
		ObjectMeta: metav1.ObjectMeta{Name: job.Name, Namespace: job.Namespace, Labels: map[string]string{spec.LabelManaged: "true"},
			OwnerReferences: []metav1.OwnerReference{owner}},
		Spec: resourcev1.ResourceClaimTemplateSpec{Spec: resourcev1.ResourceClaimSpec{
			Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{{Name: gpuClaim, Exactly: exactly}}},
		}},
	}
}

// rlimits are the ulimits of a class: Kubernetes has none, so init sets them.
func rlimits(class spec.Class) []wire.Rlimit {
	var limits []wire.Rlimit
	for _, u := range class.Ulimits {
		if number, ok := rlimitNumbers[u.Name]; ok {
			limits = append(limits, wire.Rlimit{Resource: number, Soft: uint64(u.Soft), Hard: uint64(u.Hard)}) // -1 is RLIM_INFINITY
		}
	}
	return limits
}

// rlimitNumbers are those of Linux on amd64 and arm64.
var rlimitNumbers = map[string]uint32{"cpu": 0, "fsize": 1, "data": 2, "stack": 3, "core": 4, "rss": 5, "nproc": 6, "nofile": 7,
	"memlock": 8, "as": 9, "locks": 10, "sigpending": 11, "msgqueue": 12, "nice": 13, "rtprio": 14, "rttime": 15}
