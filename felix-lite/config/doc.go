// SPDX-License-Identifier: Apache-2.0

// Package config is the agent's settings: one struct, [Config], and one table, [Settings], from
// which the file's fields, the environment variables, the command line's flags, the printed
// listing and docs/configuration.md are all derived.
//
// In come a YAML file, the environment and parsed flags ([Load]); out goes a checked [Effective]
// configuration in which every value knows where it came from. Precedence is flag, then
// environment, then file, then default. The commands under felix-lite/cmd call it; the agent and
// the tests read the struct.
//
// It must never guess: an unknown field, a value out of range or two settings that contradict each
// other is an error that names the setting and its origin, and all errors are reported together.
// It does no I/O but reading the file it is given, and asks the kernel nothing: whether a kernel
// has what a setting wants is found out by those who use the setting.
//
// Adding a setting is one field in [Config] and one row in table.go; then run
// `go generate ./felix-lite/config` to bring docs/configuration.md up to date.
package config

//go:generate go run ./internal/gendoc ../../docs/configuration.md
