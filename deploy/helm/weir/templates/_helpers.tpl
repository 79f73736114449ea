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

{{- define "weir.configMap" -}}
{{ .Values.existingConfigMap | default (include "weir.name" .) }}
{{- end }}

{{- define "weir.serviceAccount" -}}
{{ .Values.serviceAccount.existing | default (include "weir.name" .) }}
{{- end }}

{{- define "weir.image" -}}
{{- with .Values.image.digest -}}
{{ $.Values.image.repository }}@{{ . }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}
{{- end }}

{{- /* What a secret is not to be in: a ConfigMap, or the pods' description. */ -}}
{{- define "weir.urlWithPassword" -}}
(rediss?://[^",\s]*:[^",\s]*@|://[^/@"\s]*:[^/@"\s]+@)
{{- end }}

{{- /* weir.toml, parsed, as JSON; {} where it is in a ConfigMap of the user's. What the chart sets must not be in it. */ -}}
{{- define "weir.config" -}}
{{- if and .Values.existingConfigMap (trim .Values.config) }}{{ fail "config and existingConfigMap are both set: keep one" }}{{ end }}
{{- if not (or .Values.existingConfigMap (trim .Values.config)) }}{{ fail "config is empty: give the text of weir.toml, for example --set-file config=weir.toml" }}{{ end }}
{{- $config := fromToml .Values.config }}
{{- with $config.Error }}{{ fail (printf "config is not TOML: %s" .) }}{{ end }}
{{- range $setting, $instead := dict "kafka.instance" "set instancePrefix" "worker.drain" "set drainSeconds" "http.drain" "set httpDrainSeconds" "http.listen" "port 8080 is used" }}
{{- $part := splitList "." $setting }}
{{- if hasKey (default dict (get $config (first $part))) (last $part) }}
{{- fail (printf "config sets %s: leave it out, %s" $setting $instead) }}
{{- end }}
{{- end }}
{{- include "weir.noSecrets" (list $config .Values.env) }}
{{- toJson $config }}
{{- end }}

{{- /* Who may read ConfigMaps and pods may not know secrets. */ -}}
{{- define "weir.noSecrets" -}}
{{- $config := first . }}
{{- $do := "put it into a Secret, list that in secrets, and set" }}
{{- range $setting, $file := dict "redis.password" "password_file in [redis]" "http.token" "token_file in [http]" "schemas.password" "password_file in [schemas]" }}
{{- $part := splitList "." $setting }}
{{- if hasKey (default dict (get $config (first $part))) (last $part) }}
{{- fail (printf "config sets %s, and would show it in a ConfigMap: %s %s" $setting $do $file) }}
{{- end }}
{{- end }}
{{- /* Java's, too: weir refuses it where it is in the ConfigMap already. */ -}}
{{- $properties := default dict (get (default dict (get $config "kafka")) "properties") | toJson }}
{{- if regexMatch `"[^"]*(password|passphrase|secret|key[.]pem|oauthbearer[.]config|jaas)[^"]*":` $properties }}
{{- fail (printf "config has a secret in [kafka.properties], and would show it in a ConfigMap: %s its file in [kafka.property_files]" $do) }}
{{- end }}
{{- if regexMatch (include "weir.urlWithPassword" .) (toJson $config) }}
{{- fail (printf "config has a URL with a password, and would show it in a ConfigMap: %s password_file in [redis]; for other URLs, set the setting's WEIR__ variable in env with valueFrom" $do) }}
{{- end }}
{{- range last . }}
{{- if .value }}
{{- if or (regexMatch "^(AWS_(SECRET_ACCESS_KEY|SESSION_TOKEN)|WEIR__(REDIS__PASSWORD|SCHEMAS__PASSWORD|HTTP__TOKEN|KAFKA__PROPERTIES__.*(PASSWORD|PASSPHRASE|SECRET|KEY_PEM|OAUTHBEARER_CONFIG|JAAS).*))$" .name) (and (hasPrefix "WEIR__" .name) (regexMatch (include "weir.urlWithPassword" $) (toString .value))) }}
{{- fail (printf "env shows the secret %s to whoever sees the pods: use valueFrom with a secretKeyRef, or secrets" .name) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
