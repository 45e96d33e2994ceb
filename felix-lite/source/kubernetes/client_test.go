// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestTheClientIsMadeFromWhatThereIs(t *testing.T) {
	dir := t.TempDir()
	kubeconfig := filepath.Join(dir, "kubeconfig")
	write := func(name, content string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("kubeconfig", `apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://10.0.0.1:6443"}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
users: [{name: u, user: {token: secret}}]
current-context: x
`)
	write("token", "secret")
	write("ca.crt", "")
	old := serviceAccount
	serviceAccount = dir
	t.Cleanup(func() { serviceAccount = old })
	t.Setenv("KUBERNETES_SERVICE_HOST", "")

	for _, tc := range []struct {
		name       string
		o          ClientOptions
		host, fail string
	}{
		{"kubeconfig", ClientOptions{Kubeconfig: kubeconfig}, "https://10.0.0.1:6443", ""},
		{"kubeconfig with another address", ClientOptions{Kubeconfig: kubeconfig, Endpoint: "192.0.2.1:443"}, "https://192.0.2.1:443", ""},
		{"kubeconfig with another URL", ClientOptions{Kubeconfig: kubeconfig, Endpoint: "http://localhost:8080"}, "http://localhost:8080", ""},
		{"service account with an address", ClientOptions{Endpoint: "[fd00::1]:6443"}, "https://[fd00::1]:6443", ""},
		{"a kubeconfig that is missing", ClientOptions{Kubeconfig: filepath.Join(dir, "none")}, "", "read kubeconfig"},
		{"nothing", ClientOptions{}, "", "set kubeconfig where there is none"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c, err := restConfig(tc.o)
			if tc.fail != "" {
				if err == nil || !strings.Contains(err.Error(), tc.fail) {
					t.Errorf("error is %v, want %q in it", err, tc.fail)
				}
				return
			}
			if err != nil || c.Host != tc.host {
				t.Errorf("host %v, error %v, want %s", c, err, tc.host)
			}
		})
	}
	if _, err := NewClient(ClientOptions{Kubeconfig: kubeconfig, UserAgent: "felix-lite/test"}); err != nil {
		t.Error(err)
	}
}
