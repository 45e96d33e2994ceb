// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bytes"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// object is a Kubernetes object as it stands in a manifest.
type object = map[string]any

// Publish writes what an API server would know about the lab itself into every node's manifest
// directory: nodes, namespaces, pods. Call it after changing a pod's labels or readiness.
func (l *Lab) Publish() error {
	var nodes, pods []object
	namespaces := map[string]bool{"default": true}
	for _, n := range l.Nodes {
		nodes = append(nodes, n.object())
	}
	for _, p := range slices.Concat(l.Pods, l.HostPods) {
		pods = append(pods, p.object())
		namespaces[p.K8sNamespace] = true
	}
	for name := range namespaces {
		nodes = append(nodes, object{
			"apiVersion": "v1", "kind": "Namespace",
			"metadata": object{"name": name, "labels": object{"kubernetes.io/metadata.name": name}},
		})
	}
	if err := l.writeToNodes("lab-nodes.yaml", nodes...); err != nil {
		return err
	}
	return l.writeToNodes("lab-pods.yaml", pods...)
}

func (n *Node) object() object {
	labels := object{"kubernetes.io/hostname": n.Name}
	if n.Zone != "" {
		labels["topology.kubernetes.io/zone"] = n.Zone
	}
	return object{
		"apiVersion": "v1", "kind": "Node",
		"metadata": object{"name": n.Name, "labels": labels},
		"spec": object{
			"podCIDR":  n.PodCIDR4.String(),
			"podCIDRs": []string{n.PodCIDR4.String(), n.PodCIDR6.String()},
		},
		"status": object{
			"addresses": []object{
				{"type": "InternalIP", "address": n.IPv4.String()},
				{"type": "InternalIP", "address": n.IPv6.String()},
				{"type": "Hostname", "address": n.Name},
			},
			"conditions": []object{{"type": "Ready", "status": "True"}},
		},
	}
}

func (p *Pod) object() object {
	var ips []object
	for _, a := range p.addresses() {
		ips = append(ips, object{"ip": a.String()})
	}
	ready := "True"
	if p.NotReady {
		ready = "False"
	}
	spec := object{"nodeName": p.NodeName, "containers": []object{{"name": "echo", "image": "lab"}}}
	if p.HostNetwork {
		spec["hostNetwork"] = true
	}
	meta := object{"name": p.Name, "namespace": p.K8sNamespace, "uid": p.UID, "labels": p.Labels}
	if p.Annotations != nil {
		meta["annotations"] = p.Annotations
	}
	return object{
		"apiVersion": "v1", "kind": "Pod",
		"metadata": meta,
		"spec":     spec,
		"status": object{
			"phase": "Running", "podIP": ips[0]["ip"], "podIPs": ips, "hostIP": p.node.IPv4.String(),
			"conditions": []object{{"type": "Ready", "status": ready}, {"type": "ContainersReady", "status": ready}},
		},
	}
}

// writeToNodes puts a file with some objects into every node's manifest directory.
func (l *Lab) writeToNodes(file string, objects ...object) error {
	var all []byte
	for _, o := range objects {
		data, err := yaml.Marshal(o)
		if err != nil {
			return fmt.Errorf("manifest %s: %w", file, err)
		}
		all = append(append(all, "---\n"...), data...)
	}
	return l.WriteManifest(file, all)
}

// WriteManifest puts a file as it is into every node's manifest directory: tests use it for manifests
// that are broken on purpose.
func (l *Lab) WriteManifest(file string, content []byte) error {
	for _, n := range l.Nodes {
		if err := writeAtomically(filepath.Join(n.ManifestDirectory(), file), content); err != nil {
			return fmt.Errorf("node %s: %w", n.Name, err)
		}
	}
	return nil
}

// RemoveManifest deletes a file from every node's manifest directory; an absent one is not an error.
func (l *Lab) RemoveManifest(file string) error {
	for _, n := range l.Nodes {
		err := os.Remove(filepath.Join(n.ManifestDirectory(), file))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("node %s: %w", n.Name, err)
		}
	}
	return nil
}

var documentStart = regexp.MustCompile(`(?m)^---.*$`)

// Apply takes a multi-document manifest, gives Services the addresses and node ports they lack (an API
// server's job) and puts each object into its own file on every node, so that applying it again
// replaces it. It returns the names of the objects, as kind/namespace/name.
func (l *Lab) Apply(manifest []byte) ([]string, error) {
	return l.eachObject(manifest, func(file string, o object) error {
		if o["kind"] == "Service" {
			allocate(o)
		}
		return l.writeToNodes(file, o)
	})
}

// Delete removes the objects of a manifest.
func (l *Lab) Delete(manifest []byte) ([]string, error) {
	return l.eachObject(manifest, func(file string, _ object) error { return l.RemoveManifest(file) })
}

func (l *Lab) eachObject(manifest []byte, do func(file string, o object) error) ([]string, error) {
	var names []string
	for _, doc := range documentStart.Split(string(manifest), -1) {
		if len(bytes.TrimSpace([]byte(doc))) == 0 {
			continue
		}
		var o object
		if err := yaml.Unmarshal([]byte(doc), &o); err != nil {
			return names, fmt.Errorf("manifest: %w", err)
		}
		meta, _ := o["metadata"].(object)
		kind, _ := o["kind"].(string)
		name, _ := meta["name"].(string)
		if kind == "" || name == "" {
			return names, errors.New("manifest: an object without kind or metadata.name")
		}
		namespace, _ := meta["namespace"].(string)
		if namespace == "" {
			namespace = "default"
			if kind == "Node" || kind == "Namespace" {
				namespace = "-"
			}
		}
		id := strings.Join([]string{strings.ToLower(kind), namespace, name}, "/")
		if err := do("apply-"+strings.ReplaceAll(id, "/", "_")+".yaml", o); err != nil {
			return names, err
		}
		names = append(names, id)
	}
	return names, nil
}

// allocate fills in what an API server would: cluster addresses and node ports, from a hash of the
// name, so that they stay the same when the object is applied again.
func allocate(service object) {
	spec, _ := service["spec"].(object)
	meta, _ := service["metadata"].(object)
	if spec == nil || spec["clusterIP"] != nil || spec["clusterIPs"] != nil || spec["type"] == "ExternalName" {
		return
	}
	h := fnv.New32a()
	fmt.Fprint(h, meta["namespace"], "/", meta["name"])
	number := int(h.Sum32()%60000) + 1024
	families, _ := spec["ipFamilies"].([]any)
	if families == nil {
		families = []any{"IPv4"}
		if p, _ := spec["ipFamilyPolicy"].(string); strings.HasSuffix(p, "DualStack") {
			families = append(families, "IPv6")
		}
		spec["ipFamilies"] = families
	}
	var ips []any
	for _, f := range families {
		if f == "IPv6" {
			ips = append(ips, nth(ServiceCIDR6, number).String())
		} else {
			ips = append(ips, nth(ServiceCIDR4, number).String())
		}
	}
	spec["clusterIP"], spec["clusterIPs"] = ips[0], ips
	ports, _ := spec["ports"].([]any)
	for i, p := range ports {
		port, ok := p.(object)
		if ok && port["nodePort"] == nil && (spec["type"] == "NodePort" || spec["type"] == "LoadBalancer") {
			port["nodePort"] = 30000 + (number+i)%2768
		}
	}
}
