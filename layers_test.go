// Package castctl holds the conventions of the whole module as tests: who may
// import whom, that every package explains itself, and that every known pitfall
// has its test.
package castctl

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/mod/modfile"
)

// arrows is the whole of the dependency graph: who may import whom within the
// module. A change here is a change of design and deserves a word in the commit.
// internal/crashpoint is a mark in the code and may stand anywhere.
var arrows = map[string]string{
	"internal/crashpoint":          "",
	"internal/proc":                "",
	"wire":                         "",
	"transport":                    "internal/proc",
	"transport/transporttest":      "transport",
	"lease":                        "internal/proc",
	"updater":                      "internal/proc lease",
	"registry":                     "wire",
	"internal/journal":             "wire",
	"internal/dialect":             "wire",
	"internal/host":                "internal/dialect internal/journal internal/proc lease transport wire",
	"supervisor":                   "internal/dialect internal/host internal/journal internal/proc lease registry wire",
	"internal/server/servertest":   "internal/host internal/journal internal/server lease registry supervisor updater wire",
	"internal/server":              "internal/journal internal/proc lease supervisor wire",
	"client":                       "lease wire",
	"cmd/castctl":                  "client internal/host internal/journal internal/proc internal/server lease registry supervisor updater wire",
	"cmd/supercast-agent":          "cmd/supercast-agent/forecast wire",
	"cmd/supercast-agent/forecast": "wire",
	"e2e":                          "",
}

// homes names the packages that alone may import a module from outside.
var homes = map[string][]string{
	"go.etcd.io/bbolt":              {"registry", "cmd/supercast-agent/forecast"},
	"github.com/urfave/cli/v2":      {"cmd/castctl"},
	"github.com/fsnotify/fsnotify":  {"lease"},
	"github.com/shirou/gopsutil":    {"internal/proc"},
	"github.com/BurntSushi/toml":    {"cmd/castctl"},
	"github.com/dustin/go-humanize": {"cmd/castctl"},
	"gopkg.in/natefinch/lumberjack": {"cmd/castctl"},
}

const module = "github.com/castctl/castctl/"

type listed struct {
	ImportPath, Doc string
	Imports         []string
}

func packages(t *testing.T) []listed {
	t.Helper()
	testNames(t) // reads the tree, so that go test knows that the result depends on it
	cmd := exec.Command("go", "list", "-json=ImportPath,Imports,Doc", "./...")
	cmd.Env = append(os.Environ(), "GOOS=linux")
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var list []listed
	d := jsontext.NewDecoder(strings.NewReader(string(out)))
	for d.PeekKind() == jsontext.KindBeginObject {
		var p listed
		if err := json.UnmarshalDecode(d, &p, json.MatchCaseInsensitiveNames(true)); err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(p.ImportPath, module) {
			list = append(list, p)
		}
	}
	return list
}

// TestLayers: no package imports upward, and each module from outside has one
// home.
func TestLayers(t *testing.T) {
	for _, p := range packages(t) {
		name := strings.TrimPrefix(p.ImportPath, module)
		allowed, known := arrows[name]
		if !known {
			t.Errorf("%s is not in arrows: say what it may import", name)
		}
		for _, imp := range p.Imports {
			to, ours := strings.CutPrefix(imp, module)
			if ours && to != "internal/crashpoint" && !slices.Contains(strings.Fields(allowed), to) {
				t.Errorf("%s imports %s, which arrows does not allow", name, to)
			}
			for outside, owners := range homes {
				if strings.HasPrefix(imp, outside) && !slices.Contains(owners, name) {
					t.Errorf("%s imports %s, which belongs to %v", name, imp, owners)
				}
			}
		}
	}
}

// TestPackagesExplainThemselves: a newcomer finds in each package's comment what
// it is for.
func TestPackagesExplainThemselves(t *testing.T) {
	for _, p := range packages(t) {
		if len(p.Doc) < 40 {
			t.Errorf("%s has no comment that explains it: %q", p.ImportPath, p.Doc)
		}
	}
}

// modules is every direct dependency, with what it is for. A new one deserves a
// reason.
var modules = map[string]string{
	"github.com/BurntSushi/toml":               "fleet files, read strictly",
	"github.com/dustin/go-humanize":            "sizes for people",
	"github.com/fsnotify/fsnotify":             "changes of records and journals",
	"github.com/go-json-experiment/json":       "JSON that is strict about names, doubles and UTF-8",
	"github.com/google/go-cmp":                 "differences in tests",
	"github.com/rogpeppe/go-internal":          "scripts that specify the command line",
	"github.com/santhosh-tekuri/jsonschema/v6": "the published schema, checked in tests",
	"github.com/shirou/gopsutil/v3":            "measurements of processes",
	"github.com/urfave/cli/v2":                 "the command line",
	"go.etcd.io/bbolt":                         "the registry and the demo ledger",
	"go.uber.org/goleak":                       "no goroutine left, in tests",
	"golang.org/x/mod":                         "this test reads go.mod",
	"golang.org/x/sys":                         "pidfds, open file description locks",
	"gopkg.in/natefinch/lumberjack.v2":         "rotated logs",
	"pgregory.net/rapid":                       "properties, in tests",
}

// TestModules: the direct dependencies are these and no others.
func TestModules(t *testing.T) {
	b, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	f, err := modfile.Parse("go.mod", b, nil)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, r := range f.Require {
		if r.Indirect {
			continue
		}
		seen[r.Mod.Path] = true
		if modules[r.Mod.Path] == "" {
			t.Errorf("%s is required directly: say what for", r.Mod.Path)
		}
	}
	for m := range modules {
		if !seen[m] {
			t.Errorf("%s is not required any more", m)
		}
	}
}

// TestPitfalls: testdata/pitfalls.txt names a test for each pitfall that this
// floor has, and each named test exists.
func TestPitfalls(t *testing.T) {
	f, err := os.Open("testdata/pitfalls.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	tests := testNames(t)
	covered := map[string]bool{}
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		line, _, _ := strings.Cut(lines.Text(), "#")
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		covered[fields[0]] = true
		if len(fields) == 1 {
			t.Errorf("%s names no test", fields[0])
		}
		for _, name := range fields[1:] {
			if !tests[name] {
				t.Errorf("%s: there is no %s", fields[0], name)
			}
		}
	}
	for _, n := range wantedPitfalls() {
		if !covered[n] {
			t.Errorf("%s is not in testdata/pitfalls.txt", n)
		}
	}
}

// wantedPitfalls are the numbers that must have a test by now.
func wantedPitfalls() []string {
	var out []string
	for i := 1; i <= 33; i++ {
		out = append(out, fmt.Sprintf("P%d", i))
	}
	out = append(out, "P40")
	for _, n := range []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 16, 24, 26, 27, 28, 30, 32} {
		out = append(out, fmt.Sprintf("T%02d", n))
	}
	for _, n := range []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 21, 23, 24, 25, 26, 27, 30} {
		out = append(out, fmt.Sprintf("A%d", n))
	}
	return out
}

// testNames lists every test function of the module.
func testNames(t *testing.T) map[string]bool {
	t.Helper()
	decl := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
	names := map[string]bool{}
	err := filepath.WalkDir(".", func(path string, d os.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") {
			return err
		}
		b, err := os.ReadFile(path)
		if !strings.HasSuffix(path, "_test.go") {
			return err
		}
		for _, m := range decl.FindAllSubmatch(b, -1) {
			names[string(m[1])] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}
