// Package admin has the commands of administrators: node, gpu, partition, cluster,
// token and image.
package admin
