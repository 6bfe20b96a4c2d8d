{{- define "cpreplicate.name" -}}
{{ .Release.Name | trunc 40 | trimSuffix "-" }}
{{- end }}

{{- define "cpreplicate.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "cpreplicate.labels" -}}
{{ include "cpreplicate.selector" . }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{/* The objects of a shard of the service, a dict of root and number. A single one has no number. */}}
{{- define "cpreplicate.fleet-name" -}}
{{ include "cpreplicate.name" .root }}{{ if gt (int .root.Values.fleet.shards) 1 }}-{{ .number }}{{ end }}
{{- end }}

{{- define "cpreplicate.fleet-selector" -}}
{{ include "cpreplicate.selector" .root }}
app.kubernetes.io/component: fleet
{{- if gt (int .root.Values.fleet.shards) 1 }}
cpreplicate/shard: {{ .number | quote }}
{{- end }}
{{- end }}

{{/* What the pods of the service and those of the schedules have in common. */}}
{{- define "cpreplicate.pod" -}}
serviceAccountName: {{ include "cpreplicate.name" . }}
automountServiceAccountToken: {{ or .Values.spark.enabled (ne .Values.fleet.kubernetesSnapshots "") }}
terminationGracePeriodSeconds: {{ .Values.fleet.terminationGracePeriodSeconds }}
{{- with .Values.podSecurityContext }}
securityContext: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- if .Values.kerberos.enabled }}
initContainers:
  {{- include "cpreplicate.kinit" (dict "root" . "name" "kinit" "sidecar" false) | nindent 2 }}
  {{- include "cpreplicate.kinit" (dict "root" . "name" "kinit-again" "sidecar" true) | nindent 2 }}
{{- end }}
volumes:
  - name: config
    configMap:
      name: {{ include "cpreplicate.name" . }}
  - name: tmp
    emptyDir: {}
  {{- with .Values.hadoopConf }}
  - name: hadoop-conf
    configMap:
      name: {{ . }}
  {{- end }}
  {{- if .Values.kerberos.enabled }}
  - name: keytab
    secret:
      secretName: {{ .Values.kerberos.keytabSecret }}
      defaultMode: 0440
  - name: krb5-conf
    configMap:
      name: {{ .Values.kerberos.krb5Conf }}
  - name: tickets
    emptyDir:
      medium: Memory
  {{- end }}
  {{- with .Values.volumes }}{{ toYaml . | nindent 2 }}{{ end }}
{{- end }}

{{- define "cpreplicate.image" -}}
image: {{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- with .Values.image.pullPolicy }}
imagePullPolicy: {{ . }}
{{- end }}
{{- end }}

{{- define "cpreplicate.restricted" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
{{- end }}

{{/* Image, environment, limits and mounts of a container that runs cpreplicate. */}}
{{- define "cpreplicate.container" -}}
{{ include "cpreplicate.image" . }}
{{- if or .Values.env .Values.hadoopConf .Values.kerberos.enabled .Values.spark.enabled }}
env:
  {{- if .Values.hadoopConf }}
  - name: HADOOP_CONF_DIR
    value: /etc/hadoop/conf
  {{- end }}
  {{- if .Values.kerberos.enabled }}
  - name: KRB5CCNAME
    value: FILE:/run/tickets/krb5cc
  {{- end }}
  {{- if .Values.spark.enabled }}
  - name: POD_NAME
    valueFrom:
      fieldRef:
        fieldPath: metadata.name
  - name: POD_IP
    valueFrom:
      fieldRef:
        fieldPath: status.podIP
  {{- end }}
  {{- with .Values.env }}{{ toYaml . | nindent 2 }}{{ end }}
{{- end }}
{{- with .Values.envFrom }}
envFrom: {{- toYaml . | nindent 2 }}
{{- end }}
resources: {{- toYaml .Values.resources | nindent 2 }}
{{ include "cpreplicate.restricted" . }}
volumeMounts:
  - name: config
    mountPath: /etc/cpreplicate
    readOnly: true
  - name: tmp
    mountPath: /tmp
  {{- if .Values.hadoopConf }}
  - name: hadoop-conf
    mountPath: /etc/hadoop/conf
    readOnly: true
  {{- end }}
  {{- if .Values.kerberos.enabled }}
  - name: tickets
    mountPath: /run/tickets
  - name: krb5-conf
    mountPath: /etc/krb5.conf
    subPath: krb5.conf
  {{- end }}
  {{- with .Values.volumeMounts }}{{ toYaml . | nindent 2 }}{{ end }}
{{- end }}

{{/* The options of a run whose executors are pods. */}}
{{- define "cpreplicate.spark-args" -}}
{{- if .Values.spark.enabled }}
- --master=k8s://{{ .Values.spark.apiServer }}
- --properties-file=/etc/cpreplicate/spark.conf
- --conf=spark.driver.host=$(POD_IP)
- --conf=spark.driver.bindAddress=$(POD_IP)
- --conf=spark.kubernetes.driver.pod.name=$(POD_NAME)
{{- end }}
{{- end }}

{{/* Gets a ticket once, or again and again beside the run. */}}
{{- define "cpreplicate.kinit" -}}
- name: {{ .name }}
  {{ include "cpreplicate.image" .root | nindent 2 | trim }}
  {{- if .sidecar }}
  restartPolicy: Always
  {{- end }}
  command:
    - sh
    - -ec
    - |
      {{- if .sidecar }}
      trap 'exit 0' TERM
      while sleep {{ int .root.Values.kerberos.renewSeconds }} & wait $!; do
          kinit -kt /etc/keytab/keytab "$PRINCIPAL" || echo "no ticket for $PRINCIPAL" >&2
      done
      {{- else }}
      kinit -kt /etc/keytab/keytab "$PRINCIPAL"
      {{- end }}
  env:
    - name: PRINCIPAL
      value: {{ .root.Values.kerberos.principal | quote }}
    - name: KRB5CCNAME
      value: FILE:/run/tickets/krb5cc
  resources:
    requests:
      cpu: 10m
      memory: 16Mi
    limits:
      memory: 64Mi
  {{ include "cpreplicate.restricted" .root | nindent 2 | trim }}
  volumeMounts:
    - name: tickets
      mountPath: /run/tickets
    - name: keytab
      mountPath: /etc/keytab
      readOnly: true
    - name: krb5-conf
      mountPath: /etc/krb5.conf
      subPath: krb5.conf
    - name: tmp
      mountPath: /tmp
{{- end }}
