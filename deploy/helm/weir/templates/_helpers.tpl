{{- define "weir.name" -}}
{{- $name := ternary .Release.Name (printf "%s-%s" .Release.Name .Chart.Name) (contains .Chart.Name .Release.Name) -}}
{{- $name | trunc 52 | trimSuffix "-" }}
{{- end }}

{{- define "weir.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{- define "weir.labels" -}}
{{ include "weir.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- /* weir.toml, parsed, as JSON. What the chart sets must not be in it. */ -}}
{{- define "weir.config" -}}
{{- if not (trim .Values.config) }}{{ fail "config is empty: give the text of weir.toml, for example --set-file config=weir.toml" }}{{ end }}
{{- $config := fromToml .Values.config }}
{{- with $config.Error }}{{ fail (printf "config is not TOML: %s" .) }}{{ end }}
{{- range $setting, $instead := dict "kafka.instance" "the pod's name is used" "worker.drain" "set drainSeconds" "http.drain" "set httpDrainSeconds" "http.listen" "port 8080 is used" }}
{{- $part := splitList "." $setting }}
{{- if hasKey (default dict (get $config (first $part))) (last $part) }}
{{- fail (printf "config sets %s: leave it out, %s" $setting $instead) }}
{{- end }}
{{- end }}
{{- toJson $config }}
{{- end }}
