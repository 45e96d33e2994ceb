// SPDX-License-Identifier: Apache-2.0

package kernels

import (
	"bytes"
	"os/exec"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestTheInitramfsIsAnArchiveThatCpioReads(t *testing.T) {
	cpio, err := exec.LookPath("cpio")
	if err != nil {
		t.Skip("no cpio on this machine: the kernels are the other readers of the format")
	}
	var archive bytes.Buffer
	files := initramfsFiles([]byte("#!init"), []Module{{"udp_tunnel", []byte("a")}, {"vxlan", []byte("bcdef")}})
	if err := writeInitramfs(&archive, files); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(cpio, "--list", "--quiet")
	cmd.Stdin = &archive
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	want := "dev\ndev/console\ninit\nmodules\nmodules/000-udp_tunnel.ko\nmodules/001-vxlan.ko\n"
	if diff := cmp.Diff(want, string(out)); diff != "" {
		t.Error(diff)
	}
}

func TestEveryEntryOfTheInitramfsStartsOnAMultipleOfFour(t *testing.T) {
	for n := range 9 {
		var archive bytes.Buffer
		if err := writeInitramfs(&archive, []file{{path: "x", mode: typeFile, data: make([]byte, n)}}); err != nil {
			t.Fatal(err)
		}
		last := bytes.LastIndex(archive.Bytes(), []byte("070701"))
		if last <= 0 || last%4 != 0 || archive.Len()%4 != 0 {
			t.Errorf("%d bytes: trailer at %d of %d", n, last, archive.Len())
		}
	}
}
