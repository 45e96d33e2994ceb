// SPDX-License-Identifier: Apache-2.0

package files

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	serializer "k8s.io/apimachinery/pkg/runtime/serializer/json"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"sigs.k8s.io/yaml"

	"github.com/felix-lite/felix-lite/felix-lite/model"
	"github.com/felix-lite/felix-lite/felix-lite/source/convert"
	"github.com/felix-lite/felix-lite/felix-lite/source/pending"
)

// item is one object of a document. object is nil if the document names it but it can not be used.
type item struct {
	key    pending.Key
	object model.Object
	errs   []model.ObjectError
}

// document is what was understood of one document. Equal text gives an equal document, wherever it
// stands.
type document struct {
	text  [sha256.Size]byte
	items []item
	// err is what is wrong if the document can not be parsed, or is of a kind that is not read.
	err error
	// lost: the document may have held objects that are now not seen.
	lost bool
}

// chunk is the text of one document and the line of the file it begins in (JSON: 0).
type chunk struct {
	text []byte
	line int
}

// split cuts a file into its documents.
func split(name string, content []byte) ([]chunk, error) {
	if filepath.Ext(name) == ".json" {
		return splitJSON(content)
	}
	return splitYAML(content), nil
}

func splitJSON(content []byte) ([]chunk, error) {
	var out []chunk
	dec := json.NewDecoder(bytes.NewReader(content))
	for {
		var raw json.RawMessage
		switch err := dec.Decode(&raw); {
		case errors.Is(err, io.EOF):
			return out, nil
		case err != nil:
			return out, fmt.Errorf("parse JSON at byte %d: %w", dec.InputOffset(), err)
		}
		out = append(out, chunk{text: raw})
	}
}

// splitYAML cuts at the lines that begin with three dashes. What else stands on such a line belongs
// to the document.
func splitYAML(content []byte) []chunk {
	var out []chunk
	start, line, first := 0, 1, 1
	end := func(at int) {
		if text := content[start:at]; len(bytes.TrimSpace(text)) > 0 {
			out = append(out, chunk{text: text, line: first})
		}
	}
	for at := 0; at < len(content); {
		next := len(content)
		if i := bytes.IndexByte(content[at:], '\n'); i >= 0 {
			next = at + i + 1
		}
		if l := content[at:next]; bytes.HasPrefix(l, []byte("---")) && (len(l) == 3 || strings.IndexByte(" \t\r\n", l[3]) >= 0) {
			end(at)
			start, first = at+3, line
		}
		at = next
		line++
	}
	end(len(content))
	return out
}

// parseDocument understands one document. One of the same text that is known already is taken over,
// so that a small change to a large file costs little.
func parseDocument(s chunk, known map[[sha256.Size]byte]*document) document {
	d := document{text: sha256.Sum256(s.text)}
	if same := known[d.text]; same != nil && same.err == nil {
		return *same
	}
	text := s.text
	if s.line > 0 {
		var err error
		if text, err = yaml.YAMLToJSONStrict(s.text); err != nil {
			d.err, d.lost = fmt.Errorf("parse YAML: %s", shiftLines(err.Error(), s.line-1)), true
			return d
		}
	}
	d.take(text)
	return d
}

var yamlLine = regexp.MustCompile(`\bline (\d+)\b`)

// shiftLines turns line numbers that count from the document's start into the file's.
func shiftLines(message string, by int) string {
	message = strings.TrimPrefix(message, "yaml: ")
	message = strings.TrimPrefix(message, "unmarshal errors:\n  ")
	return yamlLine.ReplaceAllStringFunc(message, func(m string) string {
		var n int
		if _, err := fmt.Sscanf(m, "line %d", &n); err != nil {
			return m
		}
		return fmt.Sprintf("line %d", n+by)
	})
}

// header is what tells which object a document is about, also when the rest is wrong.
type header struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`
	Items      []json.RawMessage `json:"items"`
	Metadata   struct {
		Name      string `json:"name"`
		Namespace string `json:"namespace"`
	} `json:"metadata"`
}

// reader makes the API type of a kind that is read.
type reader struct {
	kind       model.Kind
	namespaced bool
	make       func() runtime.Object
}

var readers = map[string]reader{
	"v1 Service":                        {model.KindService, true, func() runtime.Object { return new(corev1.Service) }},
	"v1 Pod":                            {model.KindPod, true, func() runtime.Object { return new(corev1.Pod) }},
	"v1 Node":                           {model.KindNode, false, func() runtime.Object { return new(corev1.Node) }},
	"v1 Namespace":                      {model.KindNamespace, false, func() runtime.Object { return new(corev1.Namespace) }},
	"discovery.k8s.io/v1 EndpointSlice": {model.KindEndpointSlice, true, func() runtime.Object { return new(discoveryv1.EndpointSlice) }},
}

var scheme = func() *runtime.Scheme {
	s := runtime.NewScheme()
	utilruntime.Must(corev1.AddToScheme(s)) // fails only on a conflict within the API's own types
	utilruntime.Must(discoveryv1.AddToScheme(s))
	return s
}()

var decoder = serializer.NewSerializerWithOptions(serializer.DefaultMetaFactory, scheme, scheme,
	serializer.SerializerOptions{Strict: true})

// take adds what the JSON of a document holds: one object, or a List of them.
func (d *document) take(text []byte) {
	if string(bytes.TrimSpace(text)) == "null" { // only comments
		return
	}
	var h header
	if err := json.Unmarshal(text, &h); err != nil {
		d.err, d.lost = fmt.Errorf("not a Kubernetes object: %s", plain(err)), true
		return
	}
	if h.APIVersion == "v1" && h.Kind == "List" {
		for i, raw := range h.Items {
			one := document{}
			one.take(raw)
			d.items = append(d.items, one.items...)
			if one.err != nil && d.err == nil {
				d.err = fmt.Errorf("items[%d]: %w", i, one.err)
			}
			d.lost = d.lost || one.lost
		}
		return
	}
	r, ok := readers[h.APIVersion+" "+h.Kind]
	switch {
	case h.APIVersion == "" || h.Kind == "":
		d.err, d.lost = errors.New("apiVersion and kind must be set"), true
	case !ok:
		d.err = fmt.Errorf("%s of %s is not read here: only v1 Service, Pod, Node, Namespace and discovery.k8s.io/v1 EndpointSlice",
			h.Kind, h.APIVersion)
	case h.Metadata.Name == "":
		d.err, d.lost = fmt.Errorf("%s: metadata.name must be set", h.Kind), true
	default:
		d.items = append(d.items, r.read(h, text))
	}
}

// read decodes one object strictly and converts it.
func (r reader) read(h header, text []byte) item {
	it := item{key: pending.Key{Kind: r.kind, Name: model.ObjectName{Name: h.Metadata.Name}}}
	if r.namespaced {
		it.key.Name.Namespace = h.Metadata.Namespace
		if h.Metadata.Namespace == "" {
			it.key.Name.Namespace = metav1.NamespaceDefault
		}
	}
	object := r.make()
	if _, _, err := decoder.Decode(text, nil, object); err != nil {
		for _, e := range fieldErrors(err) {
			e.Kind, e.Name = it.key.Kind, it.key.Name
			it.errs = append(it.errs, e)
		}
		return it
	}
	it.object, it.errs = convert.Object(object)
	return it
}

var (
	unknownField = regexp.MustCompile(`^(unknown|duplicate) field "([^"]*)"$`)
	wrongType    = regexp.MustCompile(`cannot unmarshal (.+) into Go (?:struct field \w+\.(\S+)|value) of type (\S+)`)
)

// fieldErrors takes the decoder's error apart: one error for each field.
func fieldErrors(err error) []model.ObjectError {
	causes := []error{err}
	if strict, ok := runtime.AsStrictDecodingError(err); ok {
		causes = strict.Errors()
	}
	var out []model.ObjectError
	for _, c := range causes {
		e := model.ObjectError{Message: plain(c)}
		if m := unknownField.FindStringSubmatch(c.Error()); m != nil {
			e.Field, e.Message = m[2], "unknown field: the object is not used as it is"
			if m[1] == "duplicate" {
				e.Message = "given twice: the object is not used as it is"
			}
		} else if m := wrongType.FindStringSubmatch(c.Error()); m != nil {
			e.Field, e.Message = m[2], fmt.Sprintf("want %s, found %s", m[3], m[1])
		}
		out = append(out, e)
	}
	return out
}

// plain removes the libraries' names from the front of an error.
func plain(err error) string {
	return strings.TrimPrefix(strings.TrimPrefix(err.Error(), "json: "), "strict decoding error: ")
}
