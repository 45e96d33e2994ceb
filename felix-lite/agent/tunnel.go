// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"time"

	"github.com/sirupsen/logrus"
	"github.com/vishvananda/netlink"

	"github.com/felix-lite/felix-lite/felix-lite/config"
	"github.com/felix-lite/felix-lite/felix-lite/endpoints"
	"github.com/felix-lite/felix-lite/internal/backoff"
)

// Bytes that the overlay adds to a packet: outer IP and UDP headers, VXLAN, inner Ethernet.
const (
	overhead4 = 20 + 8 + 8 + 14
	overhead6 = 40 + 8 + 8 + 14
)

// fallbackMTU is the MTU of an uplink that is not known (yet).
const fallbackMTU = 1500

// mtus are the sizes that follow from the uplink's.
type mtus struct {
	tunnel int // largest packet inside the overlay
	pod    int // MTU of workload interfaces
	uplink int // the uplink's own
}

// mtusOf computes them. Kept apart from I/O: uplink 0 means that none is known.
func mtusOf(uplink int, underlay6 bool, cfg *config.Config) mtus {
	if uplink == 0 {
		uplink = fallbackMTU
	}
	m := mtus{tunnel: uplink - overhead4, pod: uplink, uplink: uplink}
	if underlay6 {
		m.tunnel = uplink - overhead6
	}
	if cfg.Overlay == config.OverlayVXLAN {
		m.pod = m.tunnel
	}
	if cfg.PodMTU != 0 {
		m.pod = min(m.pod, cfg.PodMTU)
	}
	return m
}

// tunnel keeps the overlay's device as it should be.
type tunnel struct {
	handle *netlink.Handle
	port   uint16
	log    *logrus.Entry
	now    func() time.Time

	mtu     int  // wanted
	dirty   bool // to be looked at in the next pass
	ifindex int  // 0: not there
	told    int  // the index that the datapath was last told
	failure error
	retry   backoff.Backoff
}

func newTunnel(h *netlink.Handle, cfg *config.Config, log *logrus.Entry, now func() time.Time) *tunnel {
	return &tunnel{handle: h, port: cfg.VXLANPort, log: log.WithField("component", "tunnel"), now: now,
		mtu: fallbackMTU - overhead4, dirty: true}
}

// want sets the MTU.
func (t *tunnel) want(mtu int) {
	if mtu != t.mtu {
		t.mtu, t.dirty = mtu, true
	}
}

// onLinks looks whether somebody deleted or changed the device.
func (t *tunnel) onLinks(links map[int]endpoints.Link) {
	l, ok := links[t.ifindex]
	if t.ifindex != 0 && (!ok || l.Name != endpoints.TunnelName || l.MTU != t.mtu || !l.Up) {
		t.dirty = true
	}
}

// ensure repairs the device where that is due, and reports whether its index is another one than the
// datapath knows.
func (t *tunnel) ensure() bool {
	now := t.now()
	if !t.dirty || !t.retry.Due(now) {
		return false
	}
	ifindex, changed, err := endpoints.EnsureTunnel(t.handle, endpoints.TunnelSpec{Port: t.port, MTU: t.mtu})
	if err != nil {
		delay := t.retry.Failed(now)
		if t.failure == nil || t.failure.Error() != err.Error() {
			t.log.WithError(err).WithField("retry", delay.Round(time.Millisecond).String()).Error("overlay device could not be set up")
		}
		t.failure = err
		return false
	}
	t.retry.Succeeded()
	t.ifindex, t.dirty, t.failure = ifindex, false, nil
	if changed {
		t.log.WithFields(logrus.Fields{"ifindex": ifindex, "mtu": t.mtu}).Info("overlay device set up")
	}
	moved := ifindex != t.told
	t.told = ifindex
	return moved
}
