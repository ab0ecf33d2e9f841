//go:build tools

// Package helm pins the command that renders the chart in tests.
package helm

import _ "helm.sh/helm/v3/cmd/helm"
