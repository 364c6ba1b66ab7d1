import com.hivemq.client.mqtt.MqttGlobalPublishFilter;
import com.hivemq.client.mqtt.datatypes.MqttQos;
import com.hivemq.client.mqtt.mqtt3.Mqtt3AsyncClient;
import com.hivemq.client.mqtt.mqtt3.message.publish.Mqtt3Publish;
import java.util.concurrent.CompletableFuture;

/** A client of MQTT 3.1.1. */
final class Client3 extends Client {
    private final Mqtt3AsyncClient mqtt;

    Client3(Run run, String clientId, Nature nature) throws Exception {
        super(run, nature);
        var builder = builder(clientId).useMqttVersion3();
        if (nature.will().isPresent()) {
            Message will = nature.will().get();
            builder = builder.willPublish(of(will.topic(), will.payload(), run.qos(), will.retain()));
        }
        mqtt = builder.buildAsync();
        mqtt.publishes(MqttGlobalPublishFilter.ALL, this::keep);
    }

    private void keep(Mqtt3Publish heard) {
        String payload = text(heard.getPayloadAsBytes());
        int qos = heard.getQos().getCode();
        messages.add(new Message(heard.getTopic().toString(), payload, qos, heard.isRetain(), null));
    }

    private static Mqtt3Publish of(String topic, String payload, MqttQos qos, boolean retain) {
        return Mqtt3Publish.builder().topic(topic).payload(bytes(payload)).qos(qos).retain(retain).build();
    }

    @Override
    boolean comeBack() throws Exception {
        return soon(mqtt.connectWith().cleanSession(!nature.lasting()).send()).isSessionPresent();
    }

    @Override
    void subscribe(String filter, MqttQos qos) throws Exception {
        var granted = soon(mqtt.subscribeWith().topicFilter(filter).qos(qos).send()).getReturnCodes();
        check(granted.size() == 1 && granted.get(0).getCode() == qos.getCode(), filter + ": " + granted);
    }

    @Override
    void unsubscribe(String filter) throws Exception {
        soon(mqtt.unsubscribeWith().topicFilter(filter).send());
    }

    @Override
    CompletableFuture<?> publish(String topic, String payload, MqttQos qos, boolean retain) {
        return mqtt.publish(of(topic, payload, qos, retain));
    }

    @Override
    void leave() throws Exception {
        soon(mqtt.disconnect());
    }
}
