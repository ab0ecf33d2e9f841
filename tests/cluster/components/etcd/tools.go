//go:build tools

// Package etcd pins the command that the real-cluster harness builds.
package etcd

import _ "go.etcd.io/etcd/server/v3"
