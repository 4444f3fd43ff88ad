package engine

import "time"

// A Cluster selects a Kubernetes cluster, and says how pods are made there.
type Cluster struct {
	// Kubeconfig and Context are found as kubectl finds them if they are empty: KUBECONFIG, else
	// the file in the home directory, else the service account of the pod that this process is in.
	Kubeconfig, Context string
	// Namespace is that of the Jobs; empty for the one of the context.
	Namespace string
	// Programs is the image with the programs of evalbox, by digest.
	Programs string
	// NodeSelector, Tolerations ("KEY=VALUE:EFFECT" or "KEY:EFFECT"), PriorityClass and PullSecrets
	// are those of the pods.
	NodeSelector  map[string]string
	Tolerations   []string
	PriorityClass string
	PullSecrets   []string
	// Queue is a LocalQueue of Kueue; empty for none.
	Queue string
	// GPUResource is the name of GPUs in the cluster; empty for nvidia.com/gpu. With GPUDeviceClass,
	// runs get devices of that class by a resource claim instead.
	GPUResource, GPUDeviceClass string
	// Seccomp is a profile on the nodes (localhostProfile); empty for RuntimeDefault.
	Seccomp string
	// CPUShare is the part of its processors that a pod reserves (its request), above 0 and at most
	// 1; 0 means 1. A smaller part puts more pods on a node, which then share its processors. Memory
	// is always reserved whole.
	CPUShare float64
	// ScheduleTimeout bounds how long a pod may wait for a node, a quota or a queue; 0 means 10 minutes.
	ScheduleTimeout time.Duration
	// AllowOpenNetwork permits programs to run where the network of their pods is not off.
	AllowOpenNetwork bool
	// Window is how long a controller may be away before its program is on its own; 0 means
	// [ReconnectBudget].
	Window time.Duration
}

// A Connector returns the engine of a cluster. Connect of the package sandbox/engine/kubernetes is one.
type Connector func(Cluster) (Engine, error)
