{{- /* Sets the values that are not there. `helm upgrade --reuse-values` takes the defaults of the release's chart in place of this one's: of an
older chart, without the values that came later. */ -}}
{{- define "weir.defaults" -}}
{{- range $name, $default := .Files.Get "files/values.yaml" | fromYaml }}
{{- $value := index $.Values $name }}
{{- if kindIs "invalid" $value }}
{{- $_ := set $.Values $name $default }}
{{- else if has $name (list "image" "serviceAccount" "networkPolicy" "serviceMonitor" "prometheusRule" "dashboard" "keda") }}
{{- range $inner, $default := $default }}
{{- if kindIs "invalid" (index $value $inner) }}{{ $_ := set $value $inner $default }}{{ end }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

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
app.kubernetes.io/version: {{ .Chart.AppVersion | replace "+" "_" | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version | replace "+" "_" }}
{{- end }}

{{- /* By what Prometheus knows this release. */ -}}
{{- define "weir.job" -}}
{{ .Release.Namespace }}/{{ include "weir.name" . }}
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

{{- /* "yes" for a text with a URL that has a password, or a token in its place. In one of Redis anything may be it: weir refuses what is
not percent-encoded, but it is in the ConfigMap already. */ -}}
{{- define "weir.urlWithPassword" -}}
{{- if regexMatch `://[^/@]*:[^/@]+@|://[^/@:[]*:[0-9]*[^0-9/@,][^@]*@|(?i:https?)://[^/@:]+@` . }}yes{{ end }}
{{- range regexSplit "(?i)rediss?://" . -1 | rest }}
{{- if regexMatch "(?s):.+@" . }}yes{{ end }}
{{- end }}
{{- end }}

{{- /* weir.toml, parsed, as JSON; {} where it is in a ConfigMap of the user's. What the chart sets must not be in it. */ -}}
{{- define "weir.config" -}}
{{- if and .Values.existingConfigMap (trim .Values.config) }}{{ fail "config and existingConfigMap are both set: keep one" }}{{ end }}
{{- if not (or .Values.existingConfigMap (trim .Values.config)) }}{{ fail "config is empty: give the text of weir.toml, for example --set-file config=weir.toml" }}{{ end }}
{{- $config := fromToml .Values.config }}
{{- with $config.Error }}{{ fail (printf "config is not TOML: %s" .) }}{{ end }}
{{- range $setting, $instead := dict "kafka.instance" "set instancePrefix" "worker.drain" "set drainSeconds" "http.drain" "set httpDrainSeconds" "http.listen" "set listenAddress" }}
{{- $part := splitList "." $setting }}
{{- if hasKey (default dict (get $config (first $part))) (last $part) }}
{{- fail (printf "config sets %s: leave it out, %s" $setting $instead) }}
{{- end }}
{{- end }}
{{- include "weir.noSecrets" (list $config .Values) }}
{{- toJson $config }}
{{- end }}

{{- /* Who may read ConfigMaps and pods may not know secrets. */ -}}
{{- define "weir.noSecrets" -}}
{{- $config := first . }}
{{- $values := last . }}
{{- $isSecret := `(?i)(password|passphrase|secret|token|(secret|access)_key)$` }}
{{- $do := "put it into a Secret, list that in secrets, and set" }}
{{- $files := dict "redis.password" "password_file in [redis]" "http.token" "token_file in [http]" "schemas.password" "password_file in [schemas]" }}
{{- range $table, $entries := $config }}
{{- range $key, $value := ternary $entries (dict) (kindIs "map" $entries) }}
{{- if and (not (kindIs "map" $value)) (regexMatch $isSecret $key) }}
{{- $setting := printf "%s.%s" $table $key }}
{{- fail (printf "config sets %s, and would show it in a ConfigMap: %s %s" $setting $do (get $files $setting | default "the file or variable that docs/security.md names")) }}
{{- end }}
{{- end }}
{{- end }}
{{- /* Java's, too, and in any case: weir refuses them where they are in the ConfigMap already. */ -}}
{{- $properties := default dict (get (default dict (get $config "kafka")) "properties") | toJson }}
{{- if regexMatch `(?i)"[^"]*(password|passphrase|secret|key[.]pem|keystore[.]key|oauthbearer[.]config|jaas)[^"]*":` $properties }}
{{- fail (printf "config has a secret in [kafka.properties], and would show it in a ConfigMap: %s its file in [kafka.property_files]" $do) }}
{{- end }}
{{- /* Where weir has no such setting it refuses the file, which is in the ConfigMap by then. The files of property_files are none. */ -}}
{{- $elsewhere := regexReplaceAll `"property_files":\{[^}]*\}` (toJson $config) "" }}
{{- with regexFind `(?i)"[^"]*(password|passphrase|secret|token|(secret|access)_key)":["\[0-9]` $elsewhere }}
{{- fail (printf "config sets %s in a place where weir has no such setting, and would show it in a ConfigMap: docs/security.md says where secrets go" (splitList ":" . | first)) }}
{{- end }}
{{- range regexFindAll `"(?:[^"\\]|\\.)*"` (toJson $config) -1 }}
{{- if include "weir.urlWithPassword" . }}
{{- fail (printf "config has a URL with a password, and would show it in a ConfigMap: %s password_file in [redis]; for other URLs, set the setting's WEIR__ variable in env with valueFrom" $do) }}
{{- end }}
{{- end }}
{{- range $values.env }}
{{- /* $(NAME) is another variable of the list, which may be from a Secret. */ -}}
{{- $value := regexReplaceAll `\$\([^)]*\)` (toString (default "" .value)) "" }}
{{- $mayHold := or (regexMatch $isSecret .name) (regexMatch `(?i)^(WEIR__KAFKA__PROPERTIES__.*(PASSWORD|PASSPHRASE|SECRET|KEY_PEM|KEYSTORE_KEY|OAUTHBEARER_CONFIG|JAAS).*|OTEL_EXPORTER_OTLP_.*HEADERS)$` .name) }}
{{- $holds := and $mayHold (eq $value (toString .value)) (not (hasPrefix "WEIR__KAFKA__PROPERTY_FILES__" .name)) }}
{{- $proxy := and (regexMatch "(?i)_proxy$" .name) (regexMatch "^[^/@:]*:[^/@][^@]*@" $value) }}
{{- if and $value (or $holds $proxy (include "weir.urlWithPassword" $value)) }}
{{- fail (printf "env shows the secret in %s to whoever sees the pods: use valueFrom with a secretKeyRef, $(NAME) of a variable that has one, or secrets" .name) }}
{{- end }}
{{- end }}
{{- range $key, $_ := $values.keda.metadata }}
{{- if regexMatch $isSecret $key }}
{{- fail (printf "keda.metadata shows the secret %s to whoever sees the ScaledObject: put it into the TriggerAuthentication of keda.authenticationRef" $key) }}
{{- end }}
{{- end }}
{{- end }}
