// Package admin implements the commands of administrators: node, gpu,
// partition, cluster, token and image.
package admin
