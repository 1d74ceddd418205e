package trace

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// Lists names the lists of jobs in a folder, in the order of their files.
func Lists(folder string) ([]string, error) {
	lists, _, err := survey(folder, &Options{})
	if err != nil {
		return nil, err
	}
	var out []string
	for _, l := range lists {
		out = append(out, l.stem)
	}
	return out, nil
}

// Published is a published figure, the mean of so many runs.
type Published struct {
	List, Policy string
	Mean         float64
	Runs         int
}

// ReadPublished reads what the authors of FGD (ATC 2023) measured, if a folder
// holds it: the percentage of GPUs that was allocated when demand% of them had been
// requested. It recognises that table among others of its form by "allo" in the
// file's name. The order is that of the file.
func ReadPublished(folder string, demand int) ([]Published, error) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if e.IsDir() || !strings.Contains(e.Name(), "allo") || !strings.HasSuffix(strings.TrimSuffix(e.Name(), ".gz"), ".csv") {
			continue
		}
		r, c, err := open(filepath.Join(folder, e.Name()))
		if err != nil {
			return nil, err
		}
		out, err := readPublished(e.Name(), r, fmt.Sprint(demand))
		_ = c.Close()
		if err != nil || len(out) > 0 {
			return out, err
		}
	}
	return nil, nil
}

func readPublished(name string, r io.Reader, column string) ([]Published, error) {
	t, err := newTable(name, r)
	if err != nil || !t.has("workload", "sc_policy", column) {
		return nil, err
	}
	var out []Published
	at := map[[2]string]int{}
	for {
		bad, fatal := t.next()
		if errors.Is(fatal, io.EOF) {
			break
		}
		v, err := t.between(0, 100, column)
		if err = errors.Join(bad, fatal, err); err != nil {
			return nil, fmt.Errorf("%s: row %d: %w", name, t.row, err)
		}
		k := [2]string{t.text("workload"), t.text("sc_policy")}
		i, ok := at[k]
		if !ok {
			i = len(out)
			at[k] = i
			out = append(out, Published{List: k[0], Policy: k[1]})
		}
		out[i].Mean += v
		out[i].Runs++
	}
	for i := range out {
		out[i].Mean /= float64(out[i].Runs)
	}
	return out, nil
}
