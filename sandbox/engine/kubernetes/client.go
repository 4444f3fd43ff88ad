package kubernetes

import (
	"sync"

	authorizationv1 "k8s.io/api/authorization/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	nodev1 "k8s.io/api/node/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/gentype"
	"k8s.io/client-go/rest"

	"github.com/evalbox/evalbox/internal/said"
)

// kinds are the kinds that the engine reads and writes. The clientset of client-go registers those of
// every API when a program starts, which costs each command of the command line several milliseconds.
var kinds = sync.OnceValues(func() (serializer.CodecFactory, runtime.ParameterCodec) {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	for _, add := range []func(*runtime.Scheme) error{
		corev1.AddToScheme, batchv1.AddToScheme, networkingv1.AddToScheme, nodev1.AddToScheme, authorizationv1.AddToScheme,
		resourcev1.AddToScheme,
	} {
		utilruntime.Must(add(scheme)) // only two kinds of one name fail
	}
	return serializer.NewCodecFactory(scheme), runtime.NewParameterCodec(scheme)
})

// clients are the clients of a cluster.
type clients struct {
	namespace                                              string
	core, batch, networking, node, authorization, resource *rest.RESTClient
}

func newClients(config *rest.Config, namespace string) (clients, error) {
	c := clients{namespace: namespace}
	config = rest.CopyConfig(config)
	config.Wrap(said.Bound)
	shared, err := rest.HTTPClientFor(config)
	if err != nil {
		return c, err
	}
	codecs, _ := kinds()
	for _, group := range []struct {
		to      **rest.RESTClient
		version schema.GroupVersion
		path    string
	}{
		{&c.core, corev1.SchemeGroupVersion, "/api"}, {&c.batch, batchv1.SchemeGroupVersion, "/apis"},
		{&c.networking, networkingv1.SchemeGroupVersion, "/apis"}, {&c.node, nodev1.SchemeGroupVersion, "/apis"},
		{&c.authorization, authorizationv1.SchemeGroupVersion, "/apis"}, {&c.resource, resourcev1.SchemeGroupVersion, "/apis"},
	} {
		own := rest.CopyConfig(config)
		own.GroupVersion, own.APIPath, own.NegotiatedSerializer = &group.version, group.path, codecs.WithoutConversion()
		if *group.to, err = rest.RESTClientForConfigAndClient(own, shared); err != nil {
			return c, err
		}
	}
	return c, nil
}

// object and list are what the library's generic client needs.
type (
	object interface {
		runtime.Object
		metav1.Object
	}
	resources[T object, L runtime.Object] = *gentype.ClientWithList[T, L]
)

// clientOf is the client of one resource; an empty namespace is that of the cluster.
func clientOf[T object, L runtime.Object](client rest.Interface, name, namespace string, one func() T, list func() L) resources[T, L] {
	_, parameters := kinds()
	return gentype.NewClientWithList(name, client, parameters, namespace, one, list)
}

// made returns the address of a new value.
func made[T any]() *T { return new(T) }

func (c clients) jobs() resources[*batchv1.Job, *batchv1.JobList] {
	return clientOf(c.batch, "jobs", c.namespace, made[batchv1.Job], made[batchv1.JobList])
}

func (c clients) pods() resources[*corev1.Pod, *corev1.PodList] {
	return clientOf(c.core, "pods", c.namespace, made[corev1.Pod], made[corev1.PodList])
}

func (c clients) claimTemplates() resources[*resourcev1.ResourceClaimTemplate, *resourcev1.ResourceClaimTemplateList] {
	return clientOf(c.resource, "resourceclaimtemplates", c.namespace, made[resourcev1.ResourceClaimTemplate], made[resourcev1.ResourceClaimTemplateList])
}

func (c clients) events() resources[*corev1.Event, *corev1.EventList] {
	return clientOf(c.core, "events", c.namespace, made[corev1.Event], made[corev1.EventList])
}

func (c clients) quotas() resources[*corev1.ResourceQuota, *corev1.ResourceQuotaList] {
	return clientOf(c.core, "resourcequotas", c.namespace, made[corev1.ResourceQuota], made[corev1.ResourceQuotaList])
}

func (c clients) namespaces() resources[*corev1.Namespace, *corev1.NamespaceList] {
	return clientOf(c.core, "namespaces", "", made[corev1.Namespace], made[corev1.NamespaceList])
}

func (c clients) nodes() resources[*corev1.Node, *corev1.NodeList] {
	return clientOf(c.core, "nodes", "", made[corev1.Node], made[corev1.NodeList])
}

func (c clients) policies() resources[*networkingv1.NetworkPolicy, *networkingv1.NetworkPolicyList] {
	return clientOf(c.networking, "networkpolicies", c.namespace, made[networkingv1.NetworkPolicy], made[networkingv1.NetworkPolicyList])
}

func (c clients) runtimeClasses() resources[*nodev1.RuntimeClass, *nodev1.RuntimeClassList] {
	return clientOf(c.node, "runtimeclasses", "", made[nodev1.RuntimeClass], made[nodev1.RuntimeClassList])
}

func (c clients) reviews() *gentype.Client[*authorizationv1.SelfSubjectAccessReview] {
	_, parameters := kinds()
	return gentype.NewClient("selfsubjectaccessreviews", c.authorization, parameters, "", made[authorizationv1.SelfSubjectAccessReview])
}
