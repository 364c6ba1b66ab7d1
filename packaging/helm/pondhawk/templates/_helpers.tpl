{{- define "pondhawk.name" -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{- define "pondhawk.secret" -}}
{{- .Values.existingSecret | default (include "pondhawk.name" .) -}}
{{- end -}}

{{- define "pondhawk.selector" -}}
app.kubernetes.io/name: pondhawk
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "pondhawk.labels" -}}
{{ include "pondhawk.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end -}}
