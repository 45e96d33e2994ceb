// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// ClientOptions say how to reach the API server.
type ClientOptions struct {
	// Kubeconfig is the path of a kubeconfig file; "": the pod's service account.
	Kubeconfig string
	// Endpoint replaces the server's address: host:port or a URL. "": as kubeconfig or service
	// account say.
	Endpoint string
	// UserAgent names the program in the API server's logs.
	UserAgent string
}

// serviceAccount is where a pod finds its credentials. A variable for the tests.
var serviceAccount = "/var/run/secrets/kubernetes.io/serviceaccount"

// NewClient returns a client. It does not connect: that the server can not be reached now is no
// error here.
func NewClient(o ClientOptions) (kubernetes.Interface, error) {
	config, err := restConfig(o)
	if err != nil {
		return nil, err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make a client for %s: %w", config.Host, err)
	}
	return client, nil
}

func restConfig(o ClientOptions) (*rest.Config, error) {
	var config *rest.Config
	var err error
	switch {
	case o.Kubeconfig != "":
		if config, err = clientcmd.BuildConfigFromFlags("", o.Kubeconfig); err != nil {
			return nil, fmt.Errorf("read kubeconfig %s: %w", o.Kubeconfig, err)
		}
	default:
		config, err = rest.InClusterConfig()
		if errors.Is(err, rest.ErrNotInCluster) && o.Endpoint != "" {
			// The variables that name the server are missing, but then it is named here.
			config, err = serviceAccountConfig()
		}
		if err != nil {
			return nil, fmt.Errorf("use the pod's service account (set kubeconfig where there is none): %w", err)
		}
	}
	if o.Endpoint != "" {
		config.Host = o.Endpoint
		if !strings.Contains(o.Endpoint, "://") {
			config.Host = "https://" + o.Endpoint
		}
	}
	config.UserAgent = o.UserAgent
	// Protocol buffers cost a fraction of JSON's time; JSON is for servers that have none.
	config.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	config.ContentType = "application/vnd.kubernetes.protobuf"
	return config, nil
}

func serviceAccountConfig() (*rest.Config, error) {
	token := filepath.Join(serviceAccount, "token")
	if _, err := os.Stat(token); err != nil {
		return nil, err
	}
	return &rest.Config{
		BearerTokenFile: token,
		TLSClientConfig: rest.TLSClientConfig{CAFile: filepath.Join(serviceAccount, "ca.crt")},
	}, nil
}
