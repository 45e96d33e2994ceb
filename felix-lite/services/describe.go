// SPDX-License-Identifier: Apache-2.0

package services

import "github.com/felix-lite/felix-lite/felix-lite/model"

// PortStatus describes one service port for people.
type PortStatus struct {
	Service   model.ObjectName
	Port      string // the port's name, may be empty
	Type      model.ServiceType
	Family    model.Family
	Protocol  model.Protocol
	ServiceID uint32 // 0 if it has no frontend of its own
	// Frontends are the ones it owns; those lost to another service are in Problems.
	Frontends []FrontendKey
	Cluster   []BackendValue
	Local     []BackendValue
	Affinity  uint32 // seconds
}
