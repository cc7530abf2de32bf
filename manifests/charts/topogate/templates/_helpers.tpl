{{- /* What several templates need. */ -}}

{{- define "topogate.image" -}}
{{- $image := .Values.image -}}
{{- printf "%s:%s" $image.repository ($image.tag | default .Chart.AppVersion) }}{{ with $image.digest }}@{{ . }}{{ end }}
{{- end -}}

{{- define "topogate.labels" -}}
{{- toJson (merge (dict "app.kubernetes.io/part-of" "topogate") .) }}
{{- end -}}

{{- define "topogate.podLabels" -}}
{{- toJson (merge (dict "app.kubernetes.io/name" "topogate" "app.kubernetes.io/component" "service") .Values.podLabels) }}
{{- end -}}

{{- define "topogate.arguments" -}}
{{- $certificates := eq .Values.certificates.mode "cert-manager" | ternary (list "--certificates-from=/certificates") list -}}
{{- toJson (concat (list "serve") $certificates .Values.extraArgs) }}
{{- end -}}

{{- define "topogate.issuerRef" -}}
{{- $own := dict "group" "cert-manager.io" "kind" "Issuer" "name" "topogate-issuer" -}}
{{- $given := .Values.certificates.issuerRef -}}
{{- toJson (empty $given | ternary $own (merge (dict) (default dict $given) (dict "group" "cert-manager.io" "kind" "Issuer"))) }}
{{- end -}}

{{- /* The name of the namespace is fixed: match conditions, admission policies and bindings contain it. With a release
in it, it was there before the release. */ -}}
{{- define "topogate.makesNamespace" -}}
{{- $create := .Values.namespace.create -}}
{{- if or (eq (toString $create) "true") (and (eq (toString $create) "auto") (ne .Release.Namespace "topogate-system")) }}true{{ end }}
{{- end -}}

{{- /* The policy as a map, also where it is given as text; as JSON. */ -}}
{{- define "topogate.policy" -}}
{{- $policy := .Values.policy -}}
{{- if kindIs "string" $policy -}}
{{- $policy = fromYaml $policy -}}
{{- with $policy.Error }}{{ fail (printf "policy: is not YAML: %s" .) }}{{ end -}}
{{- end -}}
{{- toJson (default dict $policy) }}
{{- end -}}

{{- /* A list of users as CEL. */ -}}
{{- define "topogate.celList" -}}
{{- $quoted := list -}}
{{- range . }}{{ $quoted = append $quoted (printf "'%s'" (. | replace "\\" "\\\\" | replace "'" "\\'")) }}{{ end -}}
[{{ join ",\n " $quoted }}]
{{- end -}}

{{- define "topogate.admins" -}}
{{- $policy := include "topogate.policy" . | fromJson -}}
{{- include "topogate.celList" (kindIs "invalid" $policy.admins | ternary (list "system:masters") $policy.admins) }}
{{- end -}}

{{- define "topogate.deviceWriters" -}}
{{- $policy := include "topogate.policy" . | fromJson -}}
{{- $writers := list "system:serviceaccount:topogate-system:topogate" "system:serviceaccount:koordinator-system:koord-scheduler" -}}
{{- with $policy.gpu }}{{ with .deviceAnnotationWriters }}{{ $writers = concat $writers . | uniq }}{{ end }}{{ end -}}
{{- include "topogate.celList" $writers }}
{{- end -}}

{{- define "topogate.uninstallHook" -}}
{helm.sh/hook: pre-delete, helm.sh/hook-weight: "-5", helm.sh/hook-delete-policy: "before-hook-creation,hook-succeeded"}
{{- end -}}
