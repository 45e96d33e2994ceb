// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"strings"
)

// Markdown renders docs/configuration.md from the table.
func Markdown() string {
	var b strings.Builder
	b.WriteString(`<!-- Generated from felix-lite/config by "go generate ./felix-lite/config"; do not edit. -->
# Configuration

Every setting has one name in three spellings: a field of the YAML file given with ` + "`--config`" + ` (or
` + "`" + EnvFile + "`" + `), an environment variable and a flag. A flag takes precedence over the environment,
the environment over the file, the file over the default. ` + "`felix-lite config`" + ` prints what is in effect and
where each value comes from (` + "`-o json`" + ` for programs).

` + "```yaml" + `
nodeName: node-1
source: Kubernetes
overlay: Direct
conntrackTimeouts:
  udp: 2m
disabledFeatures: [tcx]
` + "```" + `

- A field that does not exist, a value that does not fit or two settings that contradict each other are errors.
  All are listed at once, each with file and line, variable or flag, and the agent does not start. An unknown
  ` + "`FELIX_LITE_*`" + ` variable is only warned about: the environment belongs to others, too.
- Words such as ` + "`VXLAN`" + ` are written as here in the file; variables and flags take any case.
- Durations are written ` + "`50ms`, `30s`, `1h30m`" + `. Lists are YAML lists in the file and separated by commas
  elsewhere; a flag for a list may be given several times.
- A changed setting takes effect when the agent is started again; traffic goes on meanwhile.
- A map whose size is changed keeps its content.
`)
	for i := range table {
		s := &table[i]
		if s.Group != "" {
			fmt.Fprintf(&b, "\n## %s\n\n| field, variable, flag | type | default | meaning |\n|---|---|---|---|\n", s.Group)
		}
		fmt.Fprintf(&b, "| `%s`<br>`%s`<br>`--%s` | %s | %s | %s |\n",
			s.Name, s.Env(), s.Flag(), cell(s.typeName), code(s.Default), cell(s.Doc)+applies(s.Apply))
	}
	return b.String()
}

func applies(a Apply) string {
	if a == Live {
		return " *Live.*"
	}
	return ""
}

func code(s string) string {
	if s == "" {
		return "(empty)"
	}
	return "`" + s + "`"
}

// cell keeps a bar from ending the table's cell.
func cell(s string) string { return strings.ReplaceAll(s, "|", `\|`) }
