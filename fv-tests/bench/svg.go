// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"html"
	"math"
	"slices"
	"strings"
)

// A small generator of SVG plots: bars and lines, in panels side by side. Texts are texts and shapes are
// few, so that a changed figure is a changed line of the file.

// svg is a drawing in the making.
type svg struct {
	body   strings.Builder
	width  float64
	height float64
}

const (
	plotFont  = `font-family="system-ui,Helvetica,Arial,sans-serif"`
	plotInk   = "#24292f"
	plotFaint = "#d0d7de"
)

func (s *svg) rect(x, y, w, h float64, fill string) {
	fmt.Fprintf(&s.body, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"%s\"/>\n", x, y, w, h, fill)
}

func (s *svg) line(x1, y1, x2, y2 float64, stroke string, width float64) {
	fmt.Fprintf(&s.body, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"%s\" stroke-width=\"%.1f\"/>\n", x1, y1, x2, y2, stroke, width)
}

// text writes at a point; anchor is start, middle or end.
func (s *svg) text(x, y, size float64, anchor, weight, text string) {
	fmt.Fprintf(&s.body, "<text x=\"%.1f\" y=\"%.1f\" font-size=\"%.0f\" text-anchor=\"%s\" font-weight=\"%s\" fill=\"%s\">%s</text>\n",
		x, y, size, anchor, weight, plotInk, html.EscapeString(text))
}

// String is the whole file. Its background is white: it is read on dark pages too.
func (s *svg) String() string {
	return fmt.Sprintf("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" width=\"%.0f\" height=\"%.0f\" %s>\n<rect width=\"100%%\" height=\"100%%\" fill=\"#ffffff\"/>\n%s</svg>\n",
		s.width, s.height, s.width, s.height, plotFont, s.body.String())
}

// bar is one value with its quartiles.
type bar struct {
	label     string
	color     string
	value     float64
	q1, q3    float64
	uncertain bool // it is not to be trusted
}

// barPanel is a titled list of horizontal bars.
type barPanel struct {
	title string
	bars  []bar
}

// bars draws panels in columns; a line marks the value 1, which is what bars are compared with.
func bars(title, note string, panels []barPanel) string {
	const panelWidth, labelWidth, valueWidth, lineHeight, columns = 430.0, 150.0, 45.0, 18.0, 2
	most, longest := 1.0, 0
	for _, p := range panels {
		longest = max(longest, len(p.bars))
		for _, b := range p.bars {
			most = math.Max(most, math.Max(b.value, b.q3))
		}
	}
	panelHeight := 40 + lineHeight*float64(longest)
	rows := (len(panels) + columns - 1) / columns
	s := &svg{width: panelWidth*columns + 20, height: 62 + panelHeight*float64(rows)}
	s.text(16, 26, 16, "start", "600", title)
	s.text(16, 45, 12, "start", "400", note)
	scale := (panelWidth - labelWidth - valueWidth - 20) / most
	for i, p := range panels {
		left, top := 10+panelWidth*float64(i%columns), 58+panelHeight*float64(i/columns)
		x0 := left + labelWidth
		s.text(left+6, top+14, 13, "start", "600", p.title)
		for j, b := range p.bars {
			y := top + 24 + lineHeight*float64(j)
			s.text(x0-6, y+11, 11, "end", "400", b.label)
			s.rect(x0, y+1, b.value*scale, lineHeight-5, b.color)
			s.line(x0+b.q1*scale, y+lineHeight/2-1, x0+b.q3*scale, y+lineHeight/2-1, plotInk, 1)
			text := fmt.Sprintf("%.2f", b.value)
			if b.uncertain {
				text += " (void)"
			}
			s.text(x0+math.Max(b.value, b.q3)*scale+4, y+11, 11, "start", "400", text)
		}
		s.line(x0+scale, top+20, x0+scale, top+24+lineHeight*float64(len(p.bars)), plotInk, 0.6)
	}
	return s.String()
}

// point of a line.
type point struct{ x, y float64 }

// curve is one line with its legend.
type curve struct {
	label  string
	color  string
	dashed bool
	points []point
}

// linePanel is a titled diagram with lines over a logarithmic x.
type linePanel struct {
	title  string
	curves []curve
}

// lines draws panels side by side over the same values of x.
func lines(title, note, xLabel string, xs []float64, panels []linePanel) string {
	const panelWidth, plotHeight, left, top = 430.0, 230.0, 58.0, 84.0
	s := &svg{width: panelWidth*float64(len(panels)) + 20, height: top + plotHeight + 88}
	s.text(16, 26, 16, "start", "600", title)
	s.text(16, 45, 12, "start", "400", note)
	for i, p := range panels {
		x0, x1 := 10+panelWidth*float64(i)+left, 10+panelWidth*float64(i+1)-18
		s.text(x0-left+6, top-16, 13, "start", "600", p.title)
		y := newAxis(p, top, top+plotHeight)
		for _, v := range y.ticks {
			s.line(x0, y.at(v), x1, y.at(v), plotFaint, 0.8)
			s.text(x0-6, y.at(v)+4, 11, "end", "400", thousands(int(v)))
		}
		lo, hi := math.Log(xs[0]), math.Log(xs[len(xs)-1])
		px := func(v float64) float64 { return x0 + 20 + (x1-x0-40)*(math.Log(v)-lo)/math.Max(hi-lo, 1e-9) }
		for _, x := range xs {
			s.text(px(x), top+plotHeight+18, 11, "middle", "400", thousands(int(x)))
		}
		s.line(x0, top+plotHeight, x1, top+plotHeight, plotInk, 1)
		s.text((x0+x1)/2, top+plotHeight+36, 11, "middle", "400", xLabel)
		for _, c := range p.curves {
			var path []string
			for _, pt := range c.points {
				path = append(path, fmt.Sprintf("%.1f,%.1f", px(pt.x), y.at(pt.y)))
				fmt.Fprintf(&s.body, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3\" fill=\"%s\"/>\n", px(pt.x), y.at(pt.y), c.color)
			}
			dash := ""
			if c.dashed {
				dash = " stroke-dasharray=\"5 4\""
			}
			fmt.Fprintf(&s.body, "<polyline points=\"%s\" fill=\"none\" stroke=\"%s\" stroke-width=\"2\"%s/>\n", strings.Join(path, " "), c.color, dash)
		}
	}
	s.legend(panels[0].curves, 16, top+plotHeight+66)
	return s.String()
}

func (s *svg) legend(curves []curve, x, y float64) {
	for _, c := range curves {
		s.line(x, y-4, x+22, y-4, c.color, 3)
		s.text(x+28, y, 12, "start", "400", c.label)
		x += 50 + 7*float64(len(c.label))
	}
}

// axis maps values to a height.
type axis struct {
	ticks []float64
	at    func(v float64) float64
}

func newAxis(p linePanel, top, bottom float64) axis {
	var all []float64
	for _, c := range p.curves {
		for _, pt := range c.points {
			all = append(all, pt.y)
		}
	}
	if len(all) == 0 {
		all = []float64{1}
	}
	highest := slices.Max(all)
	step := math.Pow(10, math.Floor(math.Log10(highest)))
	for highest/step < 4 {
		step /= 2
	}
	var ticks []float64
	for v := 0.0; v < highest+step; v += step { // the last one is not below the highest value
		ticks = append(ticks, v)
	}
	hi := ticks[len(ticks)-1]
	return axis{ticks, func(v float64) float64 { return bottom - (bottom-top)*v/hi }}
}
