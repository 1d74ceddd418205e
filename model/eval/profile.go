package eval

import (
	"strings"

	"github.com/berth-scheduler/berth/model"
	"github.com/berth-scheduler/berth/model/graph"
)

// profileFolder is the folder of measurements by deploy/profile; several GPUs may
// have one each, named profile_h200 and the like.
const profileFolder = "profile"

// readProfile reads the measurements of deploy/profile: runs alone on a GPU, with
// the output of its tracer. Pairs are for package interfere.
func readProfile(b *builder, t *table) error {
	if err := t.has([]string{"kind"}, []string{"gpu"}, []string{"model"}, []string{"peak_mem_mib"}, []string{"flops"}); err != nil {
		return err
	}
	for _, cells := range t.lines {
		l := line{t, cells}
		if reason := unfitProfile(l); reason != "" {
			for _, target := range []Target{Memory, Util, Time} {
				b.skip(b.folder, target, reason)
			}
			continue
		}
		r := b.row(l, b.folder, l.text("gpu"))
		r.Sample.Features = profileFeatures(l, r.Sample.Features.Model)
		peak, _ := l.mib(false, "peak_mem_mib")
		r.Sample.PeakMiB = whole(peak)
		if l.flag("oom") {
			card, _ := l.mib(false, "gpu_mem_mib")
			r.Sample.Censored, r.Sample.PeakMiB = true, max(whole(card), r.Sample.PeakMiB)
			b.add(Memory, r)
			continue
		}
		if util, ok := l.num("gpu_util_pct"); ok {
			r.Sample.UtilMilli = whole(10 * util)
		}
		r.Sample.Seconds, _ = l.seconds("step_time_s")
		r.Sample.Steps = 1
		for _, target := range []Target{Memory, Util, Time} {
			b.add(target, r)
		}
	}
	return nil
}

// unfitProfile returns why a line is not a run alone on a GPU, "" if it is.
func unfitProfile(l line) string {
	switch {
	case strings.ToLower(l.text("kind")) != "single":
		return "of pairs"
	case strings.EqualFold(l.text("gpu"), "cpu"):
		return "without a GPU"
	case l.text("error") != "" && !l.flag("oom"):
		return "that failed"
	case l.text("flops") == "":
		return "without a trace"
	}
	return ""
}

func profileFeatures(l line, name string) model.Features {
	f := model.Features{
		Source: model.SourceGraph, Model: name,
		Run: model.Run{
			Batch: l.count("batch_size"), SeqLen: l.count("seq_len"), Precision: precisionOf(l.text("precision")), Framework: "pytorch",
			Checkpointing: l.flag("checkpointing"),
		},
		Params: l.count("params"), ParamBytes: l.count("param_bytes"), TrainedBytes: l.count("trained_bytes"),
		SavedBytes: l.count("saved_bytes"), TracedBytes: l.count("traced_bytes"), LiveBytes: l.count("live_bytes"),
		LargestBytes: l.count("largest_bytes"), InputBytes: l.count("input_bytes"), OutputBytes: l.count("output_bytes"),
		WorkspaceBytes: l.count("workspace_bytes"), MovedBytes: l.count("moved_bytes"), FLOPs: l.count("flops"),
		ActBytes: l.count("act_bytes"), MatrixBytes: l.count("matrix_bytes"), ScoreBytes: l.count("score_bytes"),
		Blocks: l.count("blocks"), Width: l.count("width"),
		Convs: l.count("convs"), Linears: l.count("linears"), Activations: l.count("activations"), Norms: l.count("norms"), Others: l.count("others"),
	}
	if strings.HasPrefix(strings.ToLower(l.text("mode")), "train") {
		f.Mode, f.Optimizer = model.Training, graph.Optimizer(strings.ToLower(l.text("optimizer")))
	}
	return f
}
