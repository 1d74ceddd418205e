package neural

import (
	"math"
	"math/rand/v2"
)

// logvarLimit keeps the code's deviation between e^-6 and e^6.
const logvarLimit = 12

// VAE predicts from a code: an encoder gives mean and log variance of a Gaussian
// code, a head predicts the targets from it, and a decoder restores the inputs,
// which makes the code describe the job and not only its labels. Predictions
// take the code's mean, so they are deterministic. See Regressor for what may
// run at once.
type VAE struct {
	core
	enc, head, dec stack
}

var _ Regressor = (*VAE)(nil)

// TrainVAE is TrainMLP for a VAE. Rows without any label still teach the encoder
// and the decoder.
func TrainVAE(x, y [][]float64, cfg Config) (*VAE, error) {
	c, err := newCore(x, y, cfg)
	if err != nil {
		return nil, err
	}
	v := &VAE{core: c}
	v.layOut()
	r := rand.New(rand.NewPCG(v.cfg.Seed, streamInit))
	for _, s := range []stack{v.enc, v.head, v.dec} {
		s.init(v.params, r)
	}
	if err := v.fit(v.trainer(), v.dataset(x, y)); err != nil {
		return nil, err
	}
	return v, nil
}

// layOut places the layers and allocates the parameters.
func (v *VAE) layOut() {
	var n int
	v.enc, v.head, v.dec, n = v.shape()
	v.params, v.opt = make([]float64, n), newAdam(n)
}

// shape gives the encoder the widths of Config.Hidden, the decoder the same
// backwards, and the head one layer of the last of them.
func (v *VAE) shape() (enc, head, dec stack, n int) {
	hidden, latent := v.cfg.Hidden, v.cfg.Latent
	up, down := []int{len(v.cols)}, []int{latent}
	for i, w := range hidden {
		up, down = append(up, w), append(down, hidden[len(hidden)-1-i])
	}
	enc, n = newStack(0, append(up, 2*latent)...)
	head, n = newStack(n, latent, hidden[len(hidden)-1], len(v.targets))
	dec, n = newStack(n, append(down, len(v.cols))...)
	return enc, head, dec, n
}

// Predict implements Regressor.
func (v *VAE) Predict(x, out []float64) error {
	var buf [MaxInputs]float64
	in, err := v.prepare(x, out, buf[:])
	if err != nil {
		return err
	}
	v.infer(in, out)
	v.finish(out)
	return nil
}

// PredictRow is Predict into a new slice.
func (v *VAE) PredictRow(x []float64) ([]float64, error) {
	out := make([]float64, len(v.targets))
	if err := v.Predict(x, out); err != nil {
		return nil, err
	}
	return out, nil
}

// Update implements Regressor.
func (v *VAE) Update(x, y [][]float64) error { return v.update(v.trainer(), x, y) }

func (v *VAE) infer(x, z []float64) {
	var code [2 * MaxLatent]float64
	v.enc.infer(v.params, x, code[:2*v.cfg.Latent])
	v.head.infer(v.params, code[:v.cfg.Latent], z)
}

// vaeTrainer is the network of a VAE with its working memory.
type vaeTrainer struct {
	*VAE
	te, th, td     trace
	code, dev, eps []float64 // the sample, its deviation and its noise
	dzHead, dzDec  []float64
}

func (v *VAE) trainer() *vaeTrainer {
	n := v.cfg.Latent
	return &vaeTrainer{
		VAE: v, te: v.enc.newTrace(), th: v.head.newTrace(), td: v.dec.newTrace(),
		code: make([]float64, n), dev: make([]float64, n), eps: make([]float64, n),
		dzHead: make([]float64, n), dzDec: make([]float64, n),
	}
}

func (v *vaeTrainer) gradient(g, x, want, y []float64, noise *rand.Rand) float64 {
	for i := range v.eps {
		v.eps[i] = gauss(noise)
	}
	v.enc.forward(v.params, x, v.te)
	v.sample()
	v.head.forward(v.params, v.code, v.th)
	l := rowLoss(&v.cfg, v.targets, v.th.out(), want, y, v.th.dout())
	v.head.backward(v.params, g, v.code, v.th, v.dzHead)
	l += v.reconstruct(g, x)
	l += v.diverge()
	v.enc.backward(v.params, g, x, v.te, nil)
	return l
}

// sample draws the code from the encoder's output: mean + deviation × noise.
func (v *vaeTrainer) sample() {
	n := v.cfg.Latent
	mean, logvar := v.te.out()[:n], v.te.out()[n:]
	for i := range v.code {
		v.dev[i] = exp(max(-logvarLimit, min(logvarLimit, logvar[i])) / 2)
		v.code[i] = mean[i] + float64(v.dev[i]*v.eps[i])
	}
}

// reconstruct returns the decoder's squared error per input, and sets dzDec.
func (v *vaeTrainer) reconstruct(g, x []float64) float64 {
	v.dec.forward(v.params, v.code, v.td)
	weight := v.cfg.ReconWeight / float64(len(x))
	var sum float64
	d := v.td.dout()
	for i, r := range v.td.out() {
		e := r - x[i]
		sum += float64(e * e)
		d[i] = float64(2 * weight * e)
	}
	v.dec.backward(v.params, g, v.code, v.td, v.dzDec)
	return float64(weight * sum)
}

// diverge returns the divergence of the code from N(0, 1), and sets the gradient
// by the encoder's output, of this and of what came back through the code.
func (v *vaeTrainer) diverge() float64 {
	n := v.cfg.Latent
	mean, logvar := v.te.out()[:n], v.te.out()[n:]
	dmean, dlogvar := v.te.dout()[:n], v.te.dout()[n:]
	var sum float64
	for i := range mean {
		variance := float64(v.dev[i] * v.dev[i])
		clamped := max(-logvarLimit, min(logvarLimit, logvar[i]))
		sum += float64(mean[i]*mean[i]) + variance - 1 - clamped
		dz := v.dzHead[i] + v.dzDec[i]
		dmean[i] = dz + float64(v.cfg.KLWeight*mean[i])
		dlogvar[i] = 0
		if math.Abs(logvar[i]) < logvarLimit {
			dlogvar[i] = float64(0.5*dz*v.dev[i]*v.eps[i]) + float64(0.5*v.cfg.KLWeight*(variance-1))
		}
	}
	return float64(0.5 * v.cfg.KLWeight * sum)
}
