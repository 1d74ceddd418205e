package demo

import (
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/berth-scheduler/berth/model"
	"github.com/berth-scheduler/berth/model/graph"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// trainingJob is one model of the demonstration and how it is trained.
type trainingJob struct {
	name    string
	file    string
	batch   int64
	seqLen  int64
	seconds float64 // of work on an A100
	spec    *apiv1.JobSpec
}

// loadJobs makes one training job of each ONNX graph in dir.
func loadJobs(dir, exe, outDir string) ([]trainingJob, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.onnx"))
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("--models %s: has no .onnx files", dir)
	}
	sort.Strings(files)
	jobs := make([]trainingJob, 0, len(files))
	for _, f := range files {
		j, err := newJob(f, exe, outDir)
		if err != nil {
			return nil, err
		}
		jobs = append(jobs, j)
	}
	return jobs, nil
}

// newJob reads what a user's client would read: the graph, on the client side,
// instead of numbers that users would have to guess.
func newJob(file, exe, outDir string) (trainingJob, error) {
	j := trainingJob{name: strings.TrimSuffix(filepath.Base(file), ".onnx")}
	var err error
	if j.file, err = filepath.Abs(file); err != nil {
		return j, err
	}
	// How a job is run depends on its name alone, so that every
	// demonstration is the same.
	h := fnv.New32a()
	h.Write([]byte(j.name))
	pick := int(h.Sum32())
	j.batch = []int64{2, 4, 8}[pick%3]
	j.seconds = []float64{0.7, 1, 1.3}[pick/3%3]
	j.seqLen = 128
	f, err := os.Open(j.file)
	if err != nil {
		return j, err
	}
	defer f.Close()
	g, err := graph.Read(f)
	if err != nil {
		return j, fmt.Errorf("%s: %w", file, err)
	}
	features, err := model.FromGraph(g, j.name, model.Run{
		Mode: model.Training, Batch: j.batch, SeqLen: j.seqLen, Precision: graph.AMP, Optimizer: graph.AdamW,
	})
	if err != nil {
		return j, fmt.Errorf("%s: %w", file, err)
	}
	args := []string{
		exe, "sim-job", "--onnx", j.file, "--batch", fmt.Sprint(j.batch), "--seq-len", fmt.Sprint(j.seqLen),
		"--optimizer", "adamw", "--precision", "amp", "--seconds", fmt.Sprint(j.seconds),
	}
	j.spec = &apiv1.JobSpec{
		Name: j.name, Gpus: 1, Dir: []byte(outDir), Features: features.Encode(),
		Expected: durationpb.New(time.Duration(j.seconds * float64(time.Second))),
		Stdout:   []byte("%x-%j.out"),
	}
	for _, a := range args {
		j.spec.Command = append(j.spec.Command, []byte(a))
	}
	return j, nil
}
