#!/usr/bin/env bash
# Brings up a kind cluster with simulated racks, with the service built from this checkout in it.
# Needs docker (or podman, with KIND_EXPERIMENTAL_PROVIDER=podman), kind and kubectl. Away with it: kind delete cluster --name topogate
set -euo pipefail

cluster=topogate
image=topogate:0.1.0
full=docker.io/library/$image    # as the nodes read it; podman would make localhost/topogate of the short name
engine=${KIND_EXPERIMENTAL_PROVIDER:-docker}
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
root=$(dirname -- "$here")

for program in "$engine" kind kubectl; do
  if ! command -v "$program" >/dev/null; then
    echo "kind-up: $program is not there" >&2
    exit 2
  fi
done

work=$(mktemp -d)
trap 'rm -rf -- "$work"' EXIT

"$engine" build --tag "$full" "$root"

if ! kind get clusters 2>/dev/null | grep -qx -- "$cluster"; then
  kind create cluster --config "$root/manifests/overlays/kind/kind.yaml" --wait 120s
fi

# Through an archive: `kind load docker-image` knows docker alone.
"$engine" save --output "$work/image.tar" "$full"
kind load image-archive "$work/image.tar" --name "$cluster"

# Named, so that no other cluster is touched, whatever the current context is.
kubectl() { command kubectl --context "kind-$cluster" "$@"; }

# The simulated GPUs: an extended resource that no device plugin takes away again.
for node in $(kubectl get nodes --selector cloud.provider.com/topology-rack --output name); do
  kubectl patch "$node" --subresource status --type merge \
    --patch '{"status": {"capacity": {"nvidia.com/gpu": "8"}}}'
done

kubectl apply --kustomize "$root/manifests/overlays/kind"
# An image of the same tag may be new: the running pods would not notice.
kubectl --namespace topogate-system rollout restart deployment/topogate
kubectl --namespace topogate-system rollout status deployment/topogate --timeout 120s

echo "Ready. Next: kubectl --context kind-$cluster apply -f $root/manifests/samples/job-require-rack.yaml"
