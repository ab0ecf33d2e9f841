{{- define "imagefs-guard.taintKey" -}}
{{- $default := "status-taint.cluster-autoscaler.kubernetes.io/imagefs-guard" -}}
{{- .Values.policy.taintKey | default $default -}}
{{- end -}}

{{- define "imagefs-guard.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{- define "imagefs-guard.coordinator" -}}
system:serviceaccount:{{ .Release.Namespace }}:imagefs-guard-coordinator
{{- end -}}

{{- define "imagefs-guard.containerSecurity" -}}
allowPrivilegeEscalation: false
privileged: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}

{{- define "imagefs-guard.tokenVolume" -}}
- name: token
  projected:
    defaultMode: {{ . }}
    sources:
    - serviceAccountToken:
        path: token
        expirationSeconds: 3607
    - configMap:
        name: kube-root-ca.crt
        items:
        - key: ca.crt
          path: ca.crt
{{- end -}}

{{- /* Helm reads every number as floating point and would write 2e+09. */ -}}
{{- define "imagefs-guard.policy" -}}
{{- $policy := dict -}}
{{- range $key, $value := .Values.policy -}}
{{- $_ := set $policy $key (kindIs "float64" $value | ternary (int64 $value) $value) -}}
{{- end -}}
{{- toYaml $policy -}}
{{- end -}}
