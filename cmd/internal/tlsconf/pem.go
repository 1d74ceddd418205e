package tlsconf

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
)

const (
	pemCert = "CERTIFICATE"
	pemKey  = "PRIVATE KEY"
	// maxBundle bounds a CA file: the CA in use and those it is rotated from
	// and to.
	maxBundle = 8
)

// NewKeyAndCSR returns a new P-256 key and a certificate request for it: the
// key in PEM, to be kept by the caller, and the request in DER, to be sent.
// The request names nobody, since the token determines the name in the
// answer.
func NewKeyAndCSR() (keyPEM, csrDER []byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("make key: %w", err)
	}
	if keyPEM, err = marshalKey(key); err != nil {
		return nil, nil, err
	}
	csrDER, err = newCSR(key)
	return keyPEM, csrDER, err
}

func newCSR(key crypto.Signer) ([]byte, error) {
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		return nil, fmt.Errorf("make certificate request: %w", err)
	}
	return der, nil
}

func marshalCert(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: pemCert, Bytes: der})
}

func marshalKey(key crypto.Signer) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("marshal key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: pemKey, Bytes: der}), nil
}

func parseKey(data []byte) (crypto.Signer, error) {
	block, _ := pem.Decode(data)
	if block == nil || block.Type != pemKey {
		return nil, fmt.Errorf("holds no PEM block %q", pemKey)
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, err
	}
	signer, ok := key.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("key of type %T cannot sign", key)
	}
	return signer, checkPublicKey(signer.Public())
}

// parseCerts reads 1 to maxBundle certificates.
func parseCerts(data []byte) ([]*x509.Certificate, error) {
	var certs []*x509.Certificate
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != pemCert {
			return nil, fmt.Errorf("holds a PEM block %.40q, want only %q", block.Type, pemCert)
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		if certs = append(certs, cert); len(certs) > maxBundle {
			return nil, fmt.Errorf("holds more than %d certificates", maxBundle)
		}
	}
	if len(certs) == 0 {
		return nil, errors.New("holds no certificate in PEM")
	}
	return certs, nil
}

func matchKey(cert *x509.Certificate, key crypto.Signer) error {
	pub, ok := key.Public().(interface{ Equal(crypto.PublicKey) bool })
	if !ok || !pub.Equal(cert.PublicKey) {
		return errors.New("the key is not the certificate's")
	}
	return nil
}
