package graph

import (
	"math"
	"os"
	"testing"
)

// TestSavedBytesAgreeWithPyTorch holds the rules of what autograd keeps, and
// the FLOPs, against what PyTorch 1.13 kept of torchvision's models in one
// training step at batch 8, FP32, counted by storage with saved-tensor hooks
// (berth features trace).
func TestSavedBytesAgreeWithPyTorch(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		model         string
		saved, gflops float64 // MiB, 10^9
	}{
		{"resnet18", 169.3, 29.21}, {"resnet50", 655.7, 66.26}, {"vgg16", 559.5, 247.65}, {"mobilenet_v2", 598.7, 5.29},
		{"densenet121", 994.9, 46.48}, {"vit_b_16", 1071.2, 281.81}, {"swin_t", 814.7, 72.49},
	} {
		t.Run(tc.model, func(t *testing.T) {
			t.Parallel()
			f, err := os.Open("../zoo/onnx/" + tc.model + ".onnx")
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			g, err := Read(f)
			if err != nil {
				t.Fatal(err)
			}
			s, err := Summarize(g, Options{Batch: 8, Training: true, Precision: FP32, Optimizer: SGD})
			if err != nil {
				t.Fatal(err)
			}
			if saved := float64(s.SavedBytes) / (1 << 20); math.Abs(saved/tc.saved-1) > 0.01 {
				t.Errorf("keeps %.1f MiB, PyTorch %.1f", saved, tc.saved)
			}
			if gflops := float64(s.FLOPs) / 1e9; math.Abs(gflops/tc.gflops-1) > 0.02 {
				t.Errorf("%.2f GFLOPs, PyTorch %.2f", gflops, tc.gflops)
			}
		})
	}
}
