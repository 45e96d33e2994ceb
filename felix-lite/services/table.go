// SPDX-License-Identifier: Apache-2.0

package services

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/felix-lite/felix-lite/felix-lite/model"
)

// table is one family's desired state: its frontends, and the ids in use.
type table struct {
	family    model.Family
	frontends map[FrontendKey]*frontend
	services  idSpace
	backends  backendIDs
	seeds     *seeds // nil once the first run is over

	dirtyKeys []FrontendKey // owners to be elected, entries to be compared
	listQueue []*port       // ports whose lists must be compared
	freed     []uint32      // service ids that may be used again after this run
}

// frontend is one key: who asks for it, who has it and what was last emitted for it.
type frontend struct {
	claims []*port
	owner  *port
	flags  Flags // of the owner's claim

	value   FrontendValue
	written bool
	dirty   bool // in table.dirtyKeys
}

// port is a service port in one family.
type port struct {
	entry   *entry
	name    string
	proto   model.Protocol
	family  model.Family
	created time.Time
	gone    bool

	claims   []claim
	owned    int // number of claims that it owns
	lost     map[FrontendKey]model.ObjectError
	affinity uint32
	queued   bool // in table.listQueue

	// id is 0, and everything below empty, as long as the port owns no frontend.
	id             uint32
	emitted        portState
	cluster, local []BackendValue
	byID           map[uint32]BackendValue // nil where the port is not served
}

// portState is what a port's frontends say of it.
type portState struct {
	id, affinity, clusterCount, localCount uint32
}

func newTable(f model.Family) *table {
	return &table{family: f, frontends: map[FrontendKey]*frontend{}, services: newIDSpace()}
}

// is reports whether p is the port that a Service's port describes: name and protocol identify it,
// so that it keeps its id and backends when its number changes.
func (p *port) is(sp *model.ServicePort) bool { return p.name == sp.Name && p.proto == sp.Protocol }

func (e *entry) findPort(f model.Family, sp *model.ServicePort) *port {
	for _, p := range e.ports[f] {
		if p.is(sp) {
			return p
		}
	}
	return nil
}

// claimFlags returns the flags of p's claim on a key, which it has.
func (p *port) claimFlags(k FrontendKey) Flags {
	for _, cl := range p.claims {
		if cl.key == k {
			return cl.flags
		}
	}
	return 0
}

func (t *table) touch(k FrontendKey) *frontend {
	fe := t.frontends[k]
	if fe == nil {
		fe = &frontend{}
		t.frontends[k] = fe
	}
	if !fe.dirty {
		fe.dirty = true
		t.dirtyKeys = append(t.dirtyKeys, k)
	}
	return fe
}

func (t *table) queueLists(p *port) {
	if !p.queued {
		p.queued = true
		t.listQueue = append(t.listQueue, p)
	}
}

// replaceClaims sets which frontends a port asks for. All of them are looked at again, since the
// port's age or flags may have changed, too.
func (t *table) replaceClaims(p *port, claims []claim) {
	for _, old := range p.claims {
		fe := t.touch(old.key)
		if !slices.ContainsFunc(claims, func(cl claim) bool { return cl.key == old.key }) {
			fe.claims = slices.DeleteFunc(fe.claims, func(q *port) bool { return q == p })
			delete(p.lost, old.key)
		}
	}
	p.claims = claims
	for _, cl := range claims {
		if fe := t.touch(cl.key); !slices.Contains(fe.claims, p) {
			fe.claims = append(fe.claims, p)
		}
	}
}

// electOwners decides who owns each frontend whose claims have changed, and reports the losers.
func (c *Calculator) electOwners(t *table) {
	for _, k := range t.dirtyKeys {
		fe := t.frontends[k]
		var winner *port
		for _, p := range fe.claims {
			if winner == nil || before(k, p, winner) {
				winner = p
			}
		}
		if old := fe.owner; old != winner {
			if old != nil {
				old.owned--
				t.queueLists(old)
			}
			if winner != nil {
				winner.owned++
				t.queueLists(winner)
			}
			fe.owner = winner
		}
		if winner == nil {
			continue
		}
		fe.flags = winner.claimFlags(k)
		for _, p := range fe.claims {
			if p == winner {
				delete(p.lost, k)
				continue
			}
			problem := conflict(k, p, winner)
			if p.lost[k] == problem {
				continue
			}
			if p.lost == nil {
				p.lost = map[FrontendKey]model.ObjectError{}
			}
			p.lost[k] = problem
			c.delta.Problems = append(c.delta.Problems, problem)
		}
	}
}

// before orders the claimants of a frontend, the same way on every node: a cluster IP before
// anything external, then the older service, then by name.
func before(k FrontendKey, p, q *port) bool {
	return cmp.Or(
		cmp.Compare(p.claimFlags(k)&External, q.claimFlags(k)&External),
		p.created.Compare(q.created),
		p.entry.name.Compare(q.entry.name),
		cmp.Compare(p.name, q.name),
	) < 0
}

func conflict(k FrontendKey, loser, winner *port) model.ObjectError {
	whose := "service " + winner.entry.name.String()
	if winner.entry == loser.entry {
		whose = fmt.Sprintf("its port %q", winner.name)
	}
	return model.ObjectError{
		Kind: model.KindService, Name: loser.entry.name, Field: fmt.Sprintf("spec.ports[%q]", loser.name),
		Message: fmt.Sprintf("%s is not served: it belongs to %s", k, whose),
	}
}

// emitFrontends compares each frontend that may have changed with what was last emitted.
func (c *Calculator) emitFrontends(t *table) {
	for _, k := range t.dirtyKeys {
		fe := t.frontends[k]
		fe.dirty = false
		if fe.owner == nil {
			if fe.written {
				c.delta.DeleteFrontends = append(c.delta.DeleteFrontends, k)
			}
			delete(t.frontends, k)
			continue
		}
		if v := fe.desired(); !fe.written || v != fe.value {
			fe.value, fe.written = v, true
			c.delta.Frontends = append(c.delta.Frontends, Frontend{k, v})
		}
	}
	t.dirtyKeys = t.dirtyKeys[:0]
}

func (fe *frontend) desired() FrontendValue {
	s := fe.owner.emitted
	v := FrontendValue{
		ServiceID: s.id, Flags: fe.flags, AffinityTimeout: s.affinity, ClusterCount: s.clusterCount, LocalCount: s.localCount,
	}
	if v.Flags&(ETPLocal|ITPLocal) != 0 && v.LocalCount == 0 && v.ClusterCount > 0 {
		v.Flags |= DropNoLocal
	}
	return v
}

// settle ends a run.
func (t *table) settle() {
	for _, p := range t.listQueue {
		p.queued = false
	}
	t.listQueue = t.listQueue[:0]
	for _, id := range t.freed {
		t.services.release(id)
	}
	t.freed = t.freed[:0]
}
