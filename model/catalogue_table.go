package model

// catalogue holds the costs of the zoo's architectures (package zoo) in float32; a
// test compares it with package graph's results. Counts and bytes follow from the
// published shapes alone.
var catalogue = [...]catalogueEntry{
	{
		name: "resnet18", seqLen: 0, params: 11689512, paramBytes: 46796448,
		saved: 20574208, masks: 1605632, live: 6422528, largest: 3211264, input: 602112, output: 4000, workspace: 7375872,
		moved: 70154144, acts: 32921504, matrix: 9938848, flops: 3652908544, convs: 20, linears: 1, activations: 17, norms: 20, others: 11,
	},
	{
		name: "resnet34", seqLen: 0, params: 21797672, paramBytes: 87258784,
		saved: 30609408, masks: 1605632, live: 6422528, largest: 3211264, input: 602112, output: 4000, workspace: 7375872,
		moved: 107786144, acts: 50483104, matrix: 14956448, flops: 7364201472, convs: 36, linears: 1, activations: 33, norms: 36, others: 19,
	},
	{
		name: "resnet50", seqLen: 0, params: 25557032, paramBytes: 102440608,
		saved: 84303872, masks: 1605632, live: 9633792, largest: 3211264, input: 602112, output: 4000, workspace: 7375872,
		moved: 323555232, acts: 150239136, matrix: 44459936, flops: 8284315136, convs: 53, linears: 1, activations: 49, norms: 53, others: 19,
	},
	{
		name: "resnet101", seqLen: 0, params: 44549160, paramBytes: 178618016,
		saved: 125247488, masks: 1605632, live: 9633792, largest: 3211264, input: 602112, output: 4000, workspace: 7375872,
		moved: 487329696, acts: 225302432, matrix: 64931744, flops: 15758231040, convs: 104, linears: 1, activations: 100, norms: 104, others: 36,
	},
	{
		name: "resnet152", seqLen: 0, params: 60192808, paramBytes: 241376928,
		saved: 175824896, masks: 1605632, live: 9633792, largest: 3211264, input: 602112, output: 4000, workspace: 7375872,
		moved: 689639328, acts: 318027680, matrix: 90220448, flops: 23243787776, convs: 155, linears: 1, activations: 151, norms: 155, others: 53,
	},
	{
		name: "wide_resnet50_2", seqLen: 0, params: 68883240, paramBytes: 275805856,
		saved: 110596096, masks: 1605632, live: 9633792, largest: 3211264, input: 602112, output: 4000, workspace: 7375872,
		moved: 402431904, acts: 189677472, matrix: 57606048, flops: 22931567616, convs: 53, linears: 1, activations: 49, norms: 53, others: 19,
	},
	{
		name: "resnext50_32x4d", seqLen: 0, params: 25028904, paramBytes: 100388512,
		saved: 110596096, masks: 1605632, live: 9633792, largest: 3211264, input: 602112, output: 4000, workspace: 7375872,
		moved: 402431904, acts: 189677472, matrix: 57606048, flops: 8596485120, convs: 53, linears: 1, activations: 49, norms: 53, others: 19,
	},
	{
		name: "regnet_x_400mf", seqLen: 0, params: 5495976, paramBytes: 22135328,
		saved: 25186816, masks: 0, live: 4816896, largest: 1605632, input: 602112, output: 4000, workspace: 1354752,
		moved: 84556896, acts: 39904928, matrix: 12698528, flops: 856661440, convs: 71, linears: 1, activations: 67, norms: 71, others: 24,
	},
	{
		name: "regnet_x_3_2gf", seqLen: 0, params: 15296552, paramBytes: 61436448,
		saved: 89195008, masks: 0, live: 11239424, largest: 4816896, input: 602112, output: 4000, workspace: 1354752,
		moved: 304621152, acts: 145559200, matrix: 45469728, flops: 6457879680, convs: 80, linears: 1, activations: 76, norms: 80, others: 27,
	},
	{
		name: "densenet121", seqLen: 0, params: 7978856, paramBytes: 32250016,
		saved: 128755712, masks: 1605632, live: 8429568, largest: 3211264, input: 602112, output: 4000, workspace: 7375872,
		moved: 427260832, acts: 195142560, matrix: 27600800, flops: 5811889408, convs: 120, linears: 1, activations: 121, norms: 121, others: 64,
	},
	{
		name: "densenet169", seqLen: 0, params: 14149480, paramBytes: 57231520,
		saved: 155702784, masks: 1605632, live: 8429568, largest: 3211264, input: 602112, output: 4000, workspace: 7375872,
		moved: 520492960, acts: 235812768, matrix: 29206432, flops: 6893508864, convs: 168, linears: 1, activations: 169, norms: 169, others: 88,
	},
	{
		name: "densenet201", seqLen: 0, params: 20013928, paramBytes: 80971936,
		saved: 201363968, masks: 1605632, live: 8429568, largest: 3211264, input: 602112, output: 4000, workspace: 7375872,
		moved: 678750112, acts: 304605088, matrix: 31414176, flops: 8807758592, convs: 200, linears: 1, activations: 201, norms: 201, others: 104,
	},
	{
		name: "vgg11", seqLen: 0, params: 132863336, paramBytes: 531453344,
		saved: 36493312, masks: 12251136, live: 25690112, largest: 12845056, input: 602112, output: 4000, workspace: 21676032,
		moved: 131862432, acts: 65632160, matrix: 29740960, flops: 15231744000, convs: 8, linears: 3, activations: 10, norms: 0, others: 8,
	},
	{
		name: "vgg13", seqLen: 0, params: 133047848, paramBytes: 532191392,
		saved: 55760896, masks: 12251136, live: 25690112, largest: 12845056, input: 602112, output: 4000, workspace: 57802752,
		moved: 208932768, acts: 104167328, matrix: 49008544, flops: 22635313152, convs: 10, linears: 3, activations: 12, norms: 0, others: 8,
	},
	{
		name: "vgg16", seqLen: 0, params: 138357544, paramBytes: 553430176,
		saved: 60979200, masks: 12251136, live: 25690112, largest: 12845056, input: 602112, output: 4000, workspace: 57802752,
		moved: 229805984, acts: 114603936, matrix: 54226848, flops: 30960214016, convs: 13, linears: 3, activations: 15, norms: 0, others: 8,
	},
	{
		name: "vgg16_bn", seqLen: 0, params: 138365992, paramBytes: 553497760,
		saved: 115169280, masks: 12251136, live: 25690112, largest: 12845056, input: 602112, output: 4000, workspace: 57802752,
		moved: 338186144, acts: 168794016, matrix: 54226848, flops: 31068594176, convs: 13, linears: 3, activations: 15, norms: 13, others: 8,
	},
	{
		name: "vgg19", seqLen: 0, params: 143667240, paramBytes: 574668960,
		saved: 66197504, masks: 12251136, live: 25690112, largest: 12845056, input: 602112, output: 4000, workspace: 57802752,
		moved: 250679200, acts: 125040544, matrix: 59445152, flops: 39285114880, convs: 16, linears: 3, activations: 18, norms: 0, others: 8,
	},
	{
		name: "vgg19_bn", seqLen: 0, params: 143678248, paramBytes: 574757024,
		saved: 125605888, masks: 12251136, live: 25690112, largest: 12845056, input: 602112, output: 4000, workspace: 57802752,
		moved: 369495968, acts: 184448928, matrix: 59445152, flops: 39403931648, convs: 16, linears: 3, activations: 18, norms: 16, others: 8,
	},
	{
		name: "alexnet", seqLen: 0, params: 61100840, paramBytes: 244403360,
		saved: 2960896, masks: 714752, live: 1548800, largest: 774400, input: 602112, output: 4000, workspace: 4665600,
		moved: 9269152, acts: 4335520, matrix: 1976736, flops: 1429673216, convs: 5, linears: 3, activations: 7, norms: 0, others: 6,
	},
	{
		name: "squeezenet1_1", seqLen: 0, params: 1235496, paramBytes: 4941984,
		saved: 18082208, masks: 2727936, live: 6308352, largest: 3154176, input: 602112, output: 4000, workspace: 2178000,
		moved: 57698592, acts: 28187616, matrix: 10357408, flops: 704120336, convs: 26, linears: 0, activations: 26, norms: 0, others: 14,
	},
	{
		name: "googlenet", seqLen: 0, params: 6624904, paramBytes: 26557856,
		saved: 36827008, masks: 11340800, live: 6422528, largest: 3211264, input: 602112, output: 4000, workspace: 7375872,
		moved: 110451488, acts: 49338336, matrix: 12908640, flops: 3038392432, convs: 57, linears: 1, activations: 57, norms: 57, others: 25,
	},
	{
		name: "mobilenet_v2", seqLen: 0, params: 3504872, paramBytes: 14155936,
		saved: 78204416, masks: 1280, live: 9633792, largest: 4816896, input: 602112, output: 4000, workspace: 1354752,
		moved: 158919328, acts: 78727840, matrix: 26716448, flops: 661359616, convs: 52, linears: 1, activations: 35, norms: 52, others: 13,
	},
	{
		name: "mobilenet_v3_small", seqLen: 0, params: 2542856, paramBytes: 10219872,
		saved: 16165728, masks: 1024, live: 1806336, largest: 903168, input: 602112, output: 4000, workspace: 1354752,
		moved: 37516512, acts: 17781824, matrix: 5670720, flops: 128652976, convs: 52, linears: 2, activations: 42, norms: 34, others: 27,
	},
	{
		name: "mobilenet_v3_large", seqLen: 0, params: 5483032, paramBytes: 22029728,
		saved: 44108832, masks: 1280, live: 6422528, largest: 3211264, input: 602112, output: 4000, workspace: 1354752,
		moved: 113999200, acts: 54659008, matrix: 17628672, flops: 478421152, convs: 62, linears: 2, activations: 48, norms: 46, others: 29,
	},
	{
		name: "efficientnet_b0", seqLen: 0, params: 5288548, paramBytes: 21322256,
		saved: 88188896, masks: 1280, live: 14450688, largest: 4816896, input: 602112, output: 4000, workspace: 1354752,
		moved: 262005808, acts: 113354736, matrix: 26992144, flops: 842743032, convs: 81, linears: 1, activations: 65, norms: 49, others: 93,
	},
	{
		name: "efficientnet_b1", seqLen: 0, params: 7794184, paramBytes: 31424928,
		saved: 142936448, masks: 1280, live: 16588800, largest: 5529600, input: 691200, output: 4000, workspace: 1555200,
		moved: 427688992, acts: 184400288, matrix: 43537312, flops: 1489081968, convs: 115, linears: 1, activations: 92, norms: 69, others: 134,
	},
	{
		name: "efficientnet_b2", seqLen: 0, params: 9109994, paramBytes: 36710248,
		saved: 212901008, masks: 1408, live: 23887872, largest: 7962624, input: 995328, output: 4000, workspace: 2239488,
		moved: 637056280, acts: 274656696, matrix: 64813800, flops: 2347058148, convs: 115, linears: 1, activations: 92, norms: 69, others: 134,
	},
	{
		name: "efficientnet_b3", seqLen: 0, params: 12233232, paramBytes: 49282112,
		saved: 312456768, masks: 1536, live: 38880000, largest: 12960000, input: 1080000, output: 4000, workspace: 2430000,
		moved: 935701728, acts: 403583840, matrix: 95325184, flops: 3907139904, convs: 130, linears: 1, activations: 104, norms: 78, others: 152,
	},
	{
		name: "convnext_tiny", seqLen: 0, params: 28589128, paramBytes: 114356512,
		saved: 108988416, masks: 167392, live: 10838016, largest: 4816896, input: 602112, output: 4000, workspace: 1204224,
		moved: 329221024, acts: 160021408, matrix: 53742496, flops: 8984225280, convs: 22, linears: 37, activations: 18, norms: 23, others: 118,
	},
	{
		name: "convnext_small", seqLen: 0, params: 50223688, paramBytes: 200894752,
		saved: 174016512, masks: 195616, live: 10838016, largest: 4816896, input: 602112, output: 4000, workspace: 1204224,
		moved: 529724320, acts: 257563552, matrix: 86256544, flops: 17482584576, convs: 40, linears: 73, activations: 36, norms: 41, others: 226,
	},
	{
		name: "vit_b_16", seqLen: 0, params: 86567656, paramBytes: 346270624,
		saved: 140361792, masks: 39400, live: 6146400, largest: 2420736, input: 602112, output: 4000, workspace: 602112,
		moved: 546248992, acts: 265563232, matrix: 95582176, flops: 35240617824, convs: 1, linears: 73, activations: 12, norms: 25, others: 225,
	},
	{
		name: "vit_s_16", seqLen: 0, params: 22050664, paramBytes: 88202656,
		saved: 70481952, masks: 39400, live: 3073200, largest: 1210368, input: 602112, output: 4000, workspace: 602112,
		moved: 273728608, acts: 132783616, matrix: 47793088, flops: 9254245296, convs: 1, linears: 73, activations: 12, norms: 25, others: 225,
	},
	{
		name: "vit_l_16", seqLen: 0, params: 304326632, paramBytes: 1217306528,
		saved: 371680768, masks: 77224, live: 8195200, largest: 3227648, input: 602112, output: 4000, workspace: 602112,
		moved: 1449005984, acts: 704938400, matrix: 254076320, flops: 123408839936, convs: 1, linears: 145, activations: 24, norms: 49, others: 441,
	},
	{
		name: "deit_tiny", seqLen: 0, params: 5717416, paramBytes: 22869664,
		saved: 35542032, masks: 39400, live: 1536600, largest: 605184, input: 602112, output: 4000, workspace: 602112,
		moved: 137468416, acts: 66393808, matrix: 23898544, flops: 2535606744, convs: 1, linears: 73, activations: 12, norms: 25, others: 225,
	},
	{
		name: "swin_t", seqLen: 0, params: 28288354, paramBytes: 113153416,
		saved: 106454592, masks: 179536, live: 10838016, largest: 4816896, input: 602112, output: 4000, workspace: 602112,
		moved: 424122784, acts: 206042272, matrix: 68221408, flops: 9064913904, convs: 1, linears: 76, activations: 12, norms: 29, others: 397,
	},
	{
		name: "bert-base-uncased", seqLen: 128, params: 109482240, paramBytes: 437928960,
		saved: 85724160, masks: 2384896, live: 3539456, largest: 1572864, input: 2560, output: 3072, workspace: 0,
		moved: 371609600, acts: 176560128, matrix: 56626176, flops: 22419014400, convs: 0, linears: 97, activations: 13, norms: 25, others: 271,
	},
	{
		name: "bert-large-uncased", seqLen: 128, params: 335141888, paramBytes: 1340567552,
		saved: 227545088, masks: 6341632, live: 4719104, largest: 2097152, input: 2560, output: 4096, workspace: 0,
		moved: 986216448, acts: 468197376, matrix: 150999040, flops: 79109030912, convs: 0, linears: 193, activations: 25, norms: 49, others: 535,
	},
	{
		name: "distilbert-base-uncased", seqLen: 128, params: 66362880, paramBytes: 265451520,
		saved: 42860544, masks: 1192960, live: 3539456, largest: 1572864, input: 1536, output: 393216, workspace: 0,
		moved: 185995264, acts: 88473600, matrix: 28311552, flops: 11209310208, convs: 0, linears: 48, activations: 6, norms: 13, others: 135,
	},
	{
		name: "gpt2", seqLen: 512, params: 124439808, paramBytes: 497759232,
		saved: 456130560, masks: 9539584, live: 104499200, largest: 102926336, input: 4096, output: 102926336, workspace: 0,
		moved: 2452789248, acts: 1258981376, matrix: 442664960, flops: 136640593920, convs: 0, linears: 73, activations: 12, norms: 25, others: 256,
	},
	{
		name: "gpt2-medium", seqLen: 512, params: 354823168, paramBytes: 1419292672,
		saved: 1212153856, masks: 25366528, live: 105023488, largest: 102926336, input: 4096, output: 102926336, workspace: 0,
		moved: 6356637696, acts: 3179448320, matrix: 1008896000, flops: 388981325824, convs: 0, linears: 145, activations: 24, norms: 49, others: 508,
	},
	{
		name: "t5-small-encoder", seqLen: 128, params: 35330816, paramBytes: 141323264,
		saved: 25696768, masks: 0, live: 2359296, largest: 1048576, input: 1024, output: 262144, workspace: 0,
		moved: 109341696, acts: 48247808, matrix: 18874368, flops: 5044438656, convs: 0, linears: 48, activations: 6, norms: 0, others: 152,
	},
	{
		name: "lstm-lm", seqLen: 35, params: 50065078, paramBytes: 200260312,
		saved: 1365004, masks: 68248, live: 9317840, largest: 4658920, input: 280, output: 4658920, workspace: 0,
		moved: 15069040, acts: 9863840, matrix: 4840920, flops: 1988581980, convs: 0, linears: 3, activations: 0, norms: 0, others: 7,
	},
}
