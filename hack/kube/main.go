// Command kube is a small Kubernetes in one program: its store, what decides, what
// runs the pods, and kubectl. The name that it is started by says which part it is.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	kubectl "k8s.io/kubectl/pkg/cmd"
	"k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	manager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

func main() {
	switch part := filepath.Base(os.Args[0]); part {
	case "etcd":
		etcdmain.Main(os.Args)
	case "kube-apiserver":
		serve(apiserver.NewAPIServerCommand())
	case "kube-controller-manager":
		serve(manager.NewControllerManagerCommand())
	case "kube-scheduler":
		serve(scheduler.NewSchedulerCommand())
	case "kubelet":
		serve(kubelet.NewKubeletCommand(context.Background()))
	case "kubectl":
		util.CheckErr(cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()))
	default:
		fmt.Fprintf(os.Stderr, "kube: %s is not a part of it: want etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kubelet or kubectl\n", part)
		fmt.Fprintln(os.Stderr, "hint: make a link of that name to this program, and start the link")
		os.Exit(2)
	}
}

// serve runs a part until it ends, and exits with its code.
func serve(part *cobra.Command) { os.Exit(cli.Run(part)) }
