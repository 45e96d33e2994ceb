// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"github.com/sirupsen/logrus"

	"github.com/felix-lite/felix-lite/felix-lite/model"
)

// problems logs what is wrong with objects once, when it is first said, and once when it is over.
type problems struct {
	open map[model.Kind]map[model.ObjectName]map[string]bool
}

// replace takes in all that a source says is wrong with the objects of one batch: the changed ones
// have no other errors any more than those given.
func (p *problems) replace(changes []model.Change, errs []model.ObjectError, log *logrus.Entry) {
	type object struct {
		kind model.Kind
		name model.ObjectName
	}
	now := map[object]map[string]bool{}
	for _, c := range changes {
		now[object{c.Kind, c.Name}] = nil
	}
	for _, e := range errs {
		k := object{e.Kind, e.Name}
		if now[k] == nil {
			now[k] = map[string]bool{}
		}
		now[k][e.Error()] = true
	}
	for k, texts := range now {
		before := p.open[k.kind][k.name]
		for text := range texts {
			if !before[text] {
				log.WithFields(logrus.Fields{"kind": string(k.kind), "object": k.name.String()}).Warn(text)
			}
		}
		if len(before) > 0 && len(texts) == 0 {
			log.WithFields(logrus.Fields{"kind": string(k.kind), "object": k.name.String()}).Info("object is fine now")
		}
		p.set(k.kind, k.name, texts)
	}
}

func (p *problems) set(kind model.Kind, name model.ObjectName, texts map[string]bool) {
	if len(texts) == 0 {
		delete(p.open[kind], name)
		return
	}
	if p.open == nil {
		p.open = map[model.Kind]map[model.ObjectName]map[string]bool{}
	}
	if p.open[kind] == nil {
		p.open[kind] = map[model.ObjectName]map[string]bool{}
	}
	p.open[kind][name] = texts
}
