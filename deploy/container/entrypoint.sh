#!/bin/sh
# Starts cpreplicate, or an executor of Spark as Kubernetes starts it: `executor`.
set -eu

# OpenShift runs a container under a user id without a name. Hadoop's login in Spark's JVM fails
# without one, so a passwd file of this container's own has it.
if ! getent passwd "$(id -u)" >/dev/null; then
    library=$(find /usr/lib -name 'libnss_wrapper.so*' | head -n 1)
    NSS_WRAPPER_PASSWD=$(mktemp /tmp/passwd.XXXXXX)
    NSS_WRAPPER_GROUP=/etc/group
    name=${HADOOP_USER_NAME:-cpreplicate}
    { cat /etc/passwd; echo "$name:x:$(id -u):$(id -g)::${HOME:-/tmp}:/bin/false"; } >"$NSS_WRAPPER_PASSWD"
    export LD_PRELOAD="$library" NSS_WRAPPER_PASSWD NSS_WRAPPER_GROUP
fi

case "${1:-}" in
    executor)
        SPARK_HOME=$(dirname "$(find /opt/cpreplicate/lib -path '*/pyspark/jars' -prune)")
        export SPARK_HOME
        # The options have spaces, and each variable is one line.
        env | sed -n 's/^SPARK_JAVA_OPT_\([0-9]*\)=/\1 /p' | sort -n | cut -d ' ' -f 2- \
            | sed 's/.*/"&"/' >/tmp/java_options
        exec java @/tmp/java_options -Xmx"$SPARK_EXECUTOR_MEMORY" -cp "$SPARK_HOME/jars/*" \
            org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
            --driver-url "$SPARK_DRIVER_URL" --executor-id "$SPARK_EXECUTOR_ID" \
            --cores "$SPARK_EXECUTOR_CORES" --app-id "$SPARK_APPLICATION_ID" \
            --hostname "$SPARK_EXECUTOR_POD_IP" \
            --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" --podName "$SPARK_EXECUTOR_POD_NAME"
        ;;
    *) exec cpreplicate "$@" ;;
esac
