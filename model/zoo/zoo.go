package zoo

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

// Model is one architecture.
type Model struct {
	// Name is the file's base name, as torchvision, timm or Hugging Face spell it.
	Name string
	// Params is the published number of trained values; 0 if none is published for
	// exactly this shape.
	Params int64
	build  func(*ops)
}

// ONNX returns the model as a serialized ModelProto without weights. Equal
// models give equal bytes.
func (m Model) ONNX() []byte {
	g := &ops{}
	m.build(g)
	return g.model(m.Name)
}

// Models returns the architectures, in a fixed order. Published parameter counts
// are those of the torchvision, timm and Hugging Face model cards.
func Models() []Model {
	return slices.Concat(convModels(), mobileModels(), transformerModels())
}

// Write writes all models as ONNX files without weights, NAME.onnx, into dir, which
// it creates if missing.
func Write(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make output directory: %w", err)
	}
	for _, m := range Models() {
		if err := os.WriteFile(filepath.Join(dir, m.Name+".onnx"), m.ONNX(), 0o644); err != nil {
			return fmt.Errorf("write model: %w", err)
		}
	}
	return nil
}

func convModels() []Model {
	return []Model{
		{"resnet18", 11_689_512, resnet(resnetConfig{blocks: [4]int{2, 2, 2, 2}, basic: true})},
		{"resnet34", 21_797_672, resnet(resnetConfig{blocks: [4]int{3, 4, 6, 3}, basic: true})},
		{"resnet50", 25_557_032, resnet(resnetConfig{blocks: [4]int{3, 4, 6, 3}})},
		{"resnet101", 44_549_160, resnet(resnetConfig{blocks: [4]int{3, 4, 23, 3}})},
		{"resnet152", 60_192_808, resnet(resnetConfig{blocks: [4]int{3, 8, 36, 3}})},
		{"wide_resnet50_2", 68_883_240, resnet(resnetConfig{blocks: [4]int{3, 4, 6, 3}, width: 128})},
		{"resnext50_32x4d", 25_028_904, resnet(resnetConfig{blocks: [4]int{3, 4, 6, 3}, width: 4, groups: 32})},
		{"regnet_x_400mf", 5_495_976, regnetX([4]int64{32, 64, 160, 400}, [4]int64{1, 2, 7, 12}, 16)},
		{"regnet_x_3_2gf", 15_296_552, regnetX([4]int64{96, 192, 432, 1008}, [4]int64{2, 6, 15, 2}, 48)},
		{"densenet121", 7_978_856, densenet([4]int{6, 12, 24, 16})},
		{"densenet169", 14_149_480, densenet([4]int{6, 12, 32, 32})},
		{"densenet201", 20_013_928, densenet([4]int{6, 12, 48, 32})},
		{"vgg11", 132_863_336, vgg([5]int{1, 1, 2, 2, 2}, false)},
		{"vgg13", 133_047_848, vgg([5]int{2, 2, 2, 2, 2}, false)},
		{"vgg16", 138_357_544, vgg([5]int{2, 2, 3, 3, 3}, false)},
		{"vgg16_bn", 138_365_992, vgg([5]int{2, 2, 3, 3, 3}, true)},
		{"vgg19", 143_667_240, vgg([5]int{2, 2, 4, 4, 4}, false)},
		{"vgg19_bn", 143_678_248, vgg([5]int{2, 2, 4, 4, 4}, true)},
		{"alexnet", 61_100_840, alexnet},
		{"squeezenet1_1", 1_235_496, squeezenet},
		{"googlenet", 6_624_904, googlenet},
	}
}

func mobileModels() []Model {
	return []Model{
		{"mobilenet_v2", 3_504_872, mobilenetV2},
		{"mobilenet_v3_small", 2_542_856, mobilenetV3(v3Small, 576, 1024)},
		{"mobilenet_v3_large", 5_483_032, mobilenetV3(v3Large, 960, 1280)},
		{"efficientnet_b0", 5_288_548, efficientnet(1, 1, 224)},
		{"efficientnet_b1", 7_794_184, efficientnet(1, 1.1, 240)},
		{"efficientnet_b2", 9_109_994, efficientnet(1.1, 1.2, 288)},
		{"efficientnet_b3", 12_233_232, efficientnet(1.2, 1.4, 300)},
		{"convnext_tiny", 28_589_128, convnext([4]int{3, 3, 9, 3})},
		{"convnext_small", 50_223_688, convnext([4]int{3, 3, 27, 3})},
	}
}

func transformerModels() []Model {
	return []Model{
		{"vit_b_16", 86_567_656, vit(768, 12, 12)},
		{"vit_s_16", 22_050_664, vit(384, 6, 12)},
		{"vit_l_16", 304_326_632, vit(1024, 16, 24)},
		{"deit_tiny", 5_717_416, vit(192, 3, 12)},
		{"swin_t", 28_288_354, swinTiny},
		{"bert-base-uncased", 109_482_240, bert(bertConfig{dim: 768, heads: 12, layers: 12})},
		{"bert-large-uncased", 335_141_888, bert(bertConfig{dim: 1024, heads: 16, layers: 24})},
		{"distilbert-base-uncased", 66_362_880, bert(bertConfig{dim: 768, heads: 12, layers: 6, distilled: true})},
		{"gpt2", 124_439_808, gpt2(768, 12, 12)},
		{"gpt2-medium", 354_823_168, gpt2(1024, 16, 24)},
		{"t5-small-encoder", 35_330_816, t5Encoder},
		{"lstm-lm", 0, lstm},
	}
}
