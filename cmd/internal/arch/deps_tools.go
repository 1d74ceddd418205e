//go:build tools

package arch

import (
	_ "github.com/NVIDIA/go-nvml/pkg/nvml"
	_ "github.com/containerd/containerd/v2/client"
	_ "github.com/containerd/containerd/v2/pkg/oci"
	_ "github.com/containerd/containerd/v2/pkg/cio"
	_ "github.com/containerd/containerd/v2/pkg/namespaces"
	_ "github.com/containerd/containerd/v2/contrib/seccomp"
	_ "github.com/containerd/errdefs"
	_ "github.com/containerd/containerd/api/types/task"
	_ "github.com/opencontainers/runtime-spec/specs-go"
	_ "github.com/hashicorp/memberlist"
	_ "github.com/hashicorp/raft"
	_ "github.com/hashicorp/raft-boltdb/v2"
	_ "github.com/hashicorp/go-hclog"
	_ "go.etcd.io/bbolt"
	_ "google.golang.org/grpc"
	_ "google.golang.org/protobuf/proto"
	_ "google.golang.org/genproto/googleapis/rpc/errdetails"
	_ "github.com/spf13/cobra"
	_ "go.yaml.in/yaml/v3"
	_ "golang.org/x/sync/errgroup"
	_ "golang.org/x/sys/unix"
	_ "golang.org/x/term"
	_ "github.com/prometheus/client_golang/prometheus"
	_ "github.com/prometheus/client_golang/prometheus/promhttp"
	_ "pgregory.net/rapid"
	_ "github.com/google/go-cmp/cmp"
	_ "go.uber.org/goleak"
	_ "tags.cncf.io/container-device-interface/pkg/cdi"
)

