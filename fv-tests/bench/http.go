// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"strconv"
)

// As much HTTP/1.1 as a load generator of the Siege kind and its server speak: GET without a body, answers
// with Content-Length, one request at a time, connections kept or closed after each.

// httpBody is what the server answers with: about as much as a small page or API object.
const httpBody = 1024

var (
	headerEnd      = []byte("\r\n\r\n")
	httpConnClose  = []byte("\r\nConnection: close\r\n")
	httpLength     = []byte("\r\nContent-Length: ")
	httpStatusOK   = []byte("HTTP/1.1 200 ")
	httpGetKeep    = []byte("GET / HTTP/1.1\r\nHost: bench\r\nUser-Agent: felix-lite-bench\r\nAccept: */*\r\n\r\n")
	httpGetClose   = []byte("GET / HTTP/1.1\r\nHost: bench\r\nUser-Agent: felix-lite-bench\r\nAccept: */*\r\nConnection: close\r\n\r\n")
	httpReplyKeep  = httpReply("")
	httpReplyClose = httpReply("Connection: close\r\n")
)

func httpReply(header string) []byte {
	head := "HTTP/1.1 200 OK\r\nServer: bench\r\nContent-Type: text/plain\r\nContent-Length: " + strconv.Itoa(httpBody) + "\r\n" + header + "\r\n"
	return append([]byte(head), bytes.Repeat([]byte("felix-lite.bench"), httpBody/16)...)
}

// httpAnswer is what the server makes of what it has read so far: nil while the request is not complete.
// last says that the connection ends after it.
func httpAnswer(in []byte) (out []byte, last bool) {
	end := bytes.Index(in, headerEnd)
	switch {
	case end < 0:
		return nil, false
	case bytes.Contains(in[:end+2], httpConnClose):
		return httpReplyClose, true
	}
	return httpReplyKeep, false
}

// httpComplete says whether a whole answer has been read; ok is false if it can not become one.
func httpComplete(in []byte) (complete, ok bool) {
	end := bytes.Index(in, headerEnd)
	if end < 0 {
		return false, true
	}
	at := bytes.Index(in[:end+2], httpLength)
	if !bytes.HasPrefix(in, httpStatusOK) || at < 0 {
		return false, false
	}
	length := 0
	for _, c := range in[at+len(httpLength) : end] {
		if c < '0' || c > '9' {
			break
		}
		length = 10*length + int(c-'0')
	}
	have := len(in) - end - len(headerEnd)
	return have == length, have <= length
}
