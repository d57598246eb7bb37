import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.stream.IntStream;
import kafka.Kafka;
import kafka.tools.StorageTool;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ListOffsetsOptions;
import org.apache.kafka.clients.admin.ListShareGroupOffsetsSpec;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.IsolationLevel;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.GroupIdNotFoundException;
import org.apache.kafka.common.message.ShareAcknowledgeRequestData;
import org.apache.kafka.common.message.ShareAcknowledgeResponseData;
import org.apache.kafka.common.message.ShareFetchRequestData;
import org.apache.kafka.common.message.ShareFetchResponseData;
import org.apache.kafka.common.message.ShareGroupHeartbeatRequestData;
import org.apache.kafka.common.message.ShareGroupHeartbeatResponseData;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.requests.AbstractRequest;
import org.apache.kafka.common.requests.AbstractResponse;
import org.apache.kafka.common.requests.RequestHeader;
import org.apache.kafka.common.requests.ShareAcknowledgeRequest;
import org.apache.kafka.common.requests.ShareAcknowledgeResponse;
import org.apache.kafka.common.requests.ShareFetchRequest;
import org.apache.kafka.common.requests.ShareFetchResponse;
import org.apache.kafka.common.requests.ShareGroupHeartbeatRequest;
import org.apache.kafka.common.requests.ShareGroupHeartbeatResponse;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.common.utils.internals.AppInfoParser;

/**
 * One Kafka broker in this process, and clients of it that do what the lines of a connection say.
 *
 * <p>Its argument is a folder for the broker, or the port of one that runs already. It prints the port where it takes
 * connections, and ends with the standard input.
 *
 * <p>Each connection has clients of its own, and first gets a line with Kafka's version. A line to it is a JSON object; `do`
 * names the step. Each gets one line back: its answer, or `error`. Producers are Kafka's own. Share fetches and
 * acknowledgements are single requests of the protocol, because Kafka's share consumer fetches ahead of what it is asked for.
 */
public final class Broker {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final long DEADLINE_MS = 60_000;
    /** Above the duration that `share.record.lock.duration.ms` of the groups says. */
    private static final int SOCKET_MS = 60_000;

    private final int port;
    private final Admin admin;
    private final Map<String, Transactional> producers = new HashMap<>();
    private KafkaProducer<String, String> plain;
    private final Map<String, Member> members = new LinkedHashMap<>();
    private final Map<String, Uuid> topicIds = new HashMap<>();
    /** Of the topics that had a name before. */
    private final Map<String, Uuid> earlierIds = new HashMap<>();
    /** A name that no other player has. */
    private final String player = Uuid.randomUuid().toString();
    private int probes;

    /** A producer, and where its open transaction has written to. */
    private static final class Transactional {
        final KafkaProducer<String, String> producer;
        final List<TopicPartition> written = new ArrayList<>();

        Transactional(KafkaProducer<String, String> producer) {
            this.producer = producer;
        }
    }

    /** A member of a group: its connection, on which its share session lives. */
    private static final class Member {
        final String group;
        final String id = Uuid.randomUuid().toString();
        Socket socket;
        final String topic;
        int epoch;
        int sessionEpoch;
        /** How many partitions the session has. */
        int partitions;

        Member(String group, String topic, Socket socket) {
            this.group = group;
            this.topic = topic;
            this.socket = socket;
        }
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = System.out;
        System.setOut(System.err); // what the broker prints is no answer
        boolean runs = arguments[0].matches("\\d+");
        int port = runs ? Integer.parseInt(arguments[0]) : start(Path.of(arguments[0]));
        ServerSocket players = new ServerSocket(0, 50, InetAddress.getLoopbackAddress());
        answers.println(players.getLocalPort());
        Thread accepting = new Thread(() -> accept(players, port), "accepting");
        accepting.setDaemon(true);
        accepting.start();
        while (System.in.read() >= 0) {
        }
        Runtime.getRuntime().halt(0); // its folder goes with it
    }

    private static void accept(ServerSocket players, int port) {
        while (true) {
            try {
                Socket player = players.accept();
                new Thread(() -> play(player, port), "player").start();
            } catch (IOException fault) {
                fault.printStackTrace();
            }
        }
    }

    /** Do what one player says, until it closes its connection. */
    private static void play(Socket player, int port) {
        try (player;
                BufferedReader lines = new BufferedReader(new InputStreamReader(player.getInputStream()));
                PrintStream answers = new PrintStream(player.getOutputStream(), true)) {
            Broker broker = new Broker(port);
            answers.println(JSON.createObjectNode().put("version", AppInfoParser.getVersion()));
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                ObjectNode answer = JSON.createObjectNode();
                try {
                    broker.step(JSON.readTree(line), answer);
                } catch (Exception fault) {
                    answer = JSON.createObjectNode().put("error", traced(fault));
                }
                answers.println(answer);
            }
            broker.forget();
        } catch (Exception fault) {
            fault.printStackTrace();
        }
    }

    private static String traced(Exception fault) {
        StringWriter said = new StringWriter();
        fault.printStackTrace(new PrintWriter(said));
        return said.toString();
    }

    // The broker

    private static int start(Path home) throws Exception {
        int port = freePort();
        int controller = freePort();
        Properties settings = new Properties();
        settings.putAll(Map.of(
                "process.roles", "broker,controller",
                "node.id", "1",
                "controller.quorum.voters", "1@127.0.0.1:" + controller,
                "listeners", "PLAINTEXT://127.0.0.1:" + port + ",CONTROLLER://127.0.0.1:" + controller,
                "advertised.listeners", "PLAINTEXT://127.0.0.1:" + port,
                "controller.listener.names", "CONTROLLER",
                "log.dirs", home.resolve("log").toString(),
                "auto.create.topics.enable", "false"));
        for (String topic : List.of("offsets.topic", "transaction.state.log", "share.coordinator.state.topic")) {
            settings.put(topic + ".num.partitions", "1");
            settings.put(topic + ".replication.factor", "1");
        }
        settings.put("transaction.state.log.min.isr", "1");
        settings.put("share.coordinator.state.topic.min.isr", "1");
        settings.put("controller.quorum.fetch.timeout.ms", "6000"); // a busy machine is slower than Kafka's times
        settings.put("controller.quorum.election.timeout.ms", "3000");
        settings.put("controller.quorum.request.timeout.ms", "6000");
        for (String longest : List.of("session.timeout.ms", "max.session.timeout.ms", "max.record.lock.duration.ms")) {
            settings.put("group.share." + longest, "600000");
        }
        settings.put("group.share.assignment.interval.ms", "0");
        Path file = home.resolve("server.properties");
        try (var out = Files.newOutputStream(file)) {
            settings.store(out, null);
        }
        ByteArrayOutputStream said = new ByteArrayOutputStream();
        String[] format = {"format", "-t", Uuid.randomUuid().toString(), "-c", file.toString()};
        if (StorageTool.execute(format, new PrintStream(said)) != 0) {
            throw new IllegalStateException("the folder of the broker cannot be formatted: " + said);
        }
        Thread broker = new Thread(() -> Kafka.main(new String[] {file.toString()}), "broker");
        broker.setDaemon(true);
        broker.start();
        return port;
    }

    private static int freePort() throws Exception {
        try (ServerSocket socket = new ServerSocket(0)) {
            return socket.getLocalPort();
        }
    }

    private Broker(int port) throws Exception {
        this.port = port;
        admin = Admin.create(Map.of("bootstrap.servers", "127.0.0.1:" + port));
        until(() -> !admin.describeCluster().nodes().get().isEmpty());
        until(this::hasGroupCoordinator);
        plain = producer(Map.of());
    }

    /** A look for the coordinator of a group makes the topic of the group coordinator. A heartbeat does not. */
    private boolean hasGroupCoordinator() throws Exception {
        try {
            admin.describeShareGroups(List.of("probe")).all().get();
            return true;
        } catch (ExecutionException refused) {
            return refused.getCause() instanceof GroupIdNotFoundException;
        }
    }

    private KafkaProducer<String, String> producer(Map<String, Object> more) {
        Map<String, Object> settings = new HashMap<>(more);
        settings.put("bootstrap.servers", "127.0.0.1:" + port);
        settings.put("linger.ms", 60_000); // so that the records of a step are one batch
        settings.put("delivery.timeout.ms", 120_000);
        return new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
    }

    // The steps

    private void step(JsonNode step, ObjectNode answer) throws Exception {
        String what = step.get("do").asText();
        switch (what) {
            case "topic" -> createTopic(step);
            case "grow" -> grow(step);
            case "remake" -> remake(step);
            case "configure" -> configure(step.get("group").asText(), step.get("config"));
            case "join" -> join(step);
            case "begin" -> begin(step);
            case "produce" -> answer.put("offset", produce(step));
            case "end" -> end(step);
            case "replace" -> replace(step.get("producer").asText());
            case "delete_records" -> deleteRecords(step);
            case "fetch" -> fetch(step, answer.putArray("batches"));
            case "acknowledge" -> acknowledge(step);
            case "settle_late" -> settleLate(step, answer.putArray("codes"));
            case "leave" -> leave(step);
            case "ends" -> ends(step, answer);
            case "offsets" -> offsets(step, answer.putArray("partitions"));
            case "forget" -> forget();
            case "reconnect" -> reconnect();
            default -> throw new IllegalArgumentException("no step is called " + what);
        }
    }

    private void createTopic(JsonNode step) throws Exception {
        String topic = step.get("topic").asText();
        var created = admin.createTopics(List.of(new NewTopic(topic, step.get("partitions").asInt(), (short) 1)));
        created.all().get();
        topicIds.put(topic, created.topicId(topic).get());
    }

    private void grow(JsonNode step) throws Exception {
        String topic = step.get("topic").asText();
        int partitions = step.get("partitions").asInt();
        admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(partitions))).all().get();
        assign(topic, partitions);
    }

    private void remake(JsonNode step) throws Exception {
        String topic = step.get("topic").asText();
        earlierIds.put(topic, topicIds.get(topic));
        admin.deleteTopics(List.of(topic)).all().get();
        until(() -> !admin.listTopics().names().get().contains(topic));
        until(() -> {
            createTopic(step);
            return true;
        });
        assign(topic, step.get("partitions").asInt());
        renewProducers();
    }

    /** A producer does not believe in a partition whose leader epoch is below that of the earlier topic's. */
    private void renewProducers() throws Exception {
        plain.close();
        plain = producer(Map.of());
        for (String name : List.copyOf(producers.keySet())) {
            replace(name);
        }
    }

    /** Wait until the members of each group have all partitions of the topic among them. */
    private void assign(String topic, int partitions) throws Exception {
        Map<String, Set<Integer>> assigned = new HashMap<>();
        for (Member member : members.values()) {
            assigned.computeIfAbsent(member.group, ignored -> new HashSet<>());
        }
        until(() -> {
            assigned.values().forEach(Set::clear);
            for (Member member : members.values()) {
                assigned.get(member.group).addAll(heartbeat(member));
            }
            return assigned.values().stream().allMatch(of -> of.size() == partitions);
        });
    }

    /** Set what a group has of settings, and wait until the broker goes by it. */
    private void configure(String group, JsonNode config) throws Exception {
        List<AlterConfigOp> changes = new ArrayList<>();
        config.fields().forEachRemaining(field -> changes.add(
                new AlterConfigOp(new ConfigEntry(field.getKey(), field.getValue().asText()), AlterConfigOp.OpType.SET)));
        alter(group, changes);
        // The broker shows a setting a moment before it goes by it, but takes one change after another.
        String another = Integer.toString(15_000 + probes++ % 10_000);
        alter(player, List.of(new AlterConfigOp(
                new ConfigEntry("share.record.lock.duration.ms", another), AlterConfigOp.OpType.SET)));
    }

    private void alter(String group, Collection<AlterConfigOp> changes) throws Exception {
        ConfigResource resource = new ConfigResource(ConfigResource.Type.GROUP, group);
        admin.incrementalAlterConfigs(Map.of(resource, changes)).all().get();
        until(() -> {
            var shown = admin.describeConfigs(List.of(resource)).all().get().get(resource);
            return changes.stream().allMatch(change -> Objects.equals(
                    shown.get(change.configEntry().name()).value(), change.configEntry().value()));
        });
    }

    private void join(JsonNode step) throws Exception {
        String topic = step.get("topic").asText();
        Member member = new Member(step.get("group").asText(), topic, new Socket("127.0.0.1", port));
        member.socket.setSoTimeout(SOCKET_MS);
        members.put(step.get("member").asText(), member);
        until(() -> !heartbeat(member).isEmpty());
    }

    /** Returns: the partitions of its topic that the member has. A member that was forgotten joins again. */
    private List<Integer> heartbeat(Member member) throws Exception {
        ShareGroupHeartbeatRequestData data = new ShareGroupHeartbeatRequestData()
                .setGroupId(member.group)
                .setMemberId(member.id)
                .setMemberEpoch(member.epoch)
                .setSubscribedTopicNames(List.of(member.topic)); // with its subscription each answer has the assignment
        ShareGroupHeartbeatResponseData answer = ((ShareGroupHeartbeatResponse)
                ask(member, new ShareGroupHeartbeatRequest.Builder(data).build())).data();
        if (answer.errorCode() != Errors.NONE.code()) {
            member.epoch = 0;
        }
        check(answer.errorCode(), "a heartbeat");
        member.epoch = answer.memberEpoch();
        Uuid topicId = topicIds.get(member.topic);
        return answer.assignment() == null
                ? List.of()
                : answer.assignment().topicPartitions().stream()
                        .filter(of -> of.topicId().equals(topicId))
                        .flatMap(of -> of.partitions().stream())
                        .toList();
    }

    private void begin(JsonNode step) throws Exception {
        String name = step.get("producer").asText();
        if (!producers.containsKey(name)) {
            replace(name);
        }
        producers.get(name).producer.beginTransaction();
    }

    /** A new producer with the name: it ends the transaction that the earlier one left open. */
    private void replace(String name) throws Exception {
        Transactional earlier = producers.get(name);
        Map<TopicPartition, Long> ends = earlier == null ? Map.of() : logEnds(earlier.written);
        KafkaProducer<String, String> producer = producer(
                Map.of("transactional.id", name + "-" + player, "transaction.timeout.ms", 600_000));
        producer.initTransactions();
        producers.put(name, new Transactional(producer));
        if (earlier != null) {
            markersOf(ends);
            earlier.producer.close(Duration.ZERO);
        }
    }

    private long produce(JsonNode step) throws Exception {
        TopicPartition place = new TopicPartition(step.get("topic").asText(), step.get("partition").asInt());
        Transactional transactional = step.hasNonNull("producer") ? producers.get(step.get("producer").asText()) : null;
        KafkaProducer<String, String> producer = transactional == null ? plain : transactional.producer;
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        for (JsonNode value : step.get("values")) {
            sent.add(producer.send(new ProducerRecord<>(place.topic(), place.partition(), null, value.asText())));
        }
        producer.flush();
        if (transactional != null && !transactional.written.contains(place)) {
            transactional.written.add(place);
        }
        return sent.get(0).get().offset();
    }

    private void end(JsonNode step) throws Exception {
        Transactional of = producers.get(step.get("producer").asText());
        Map<TopicPartition, Long> ends = logEnds(of.written);
        if (step.get("commit").asBoolean()) {
            of.producer.commitTransaction();
        } else {
            of.producer.abortTransaction();
        }
        markersOf(ends);
        of.written.clear();
    }

    /** Wait for the markers: Kafka writes them after it has answered. Nobody else appends. */
    private void markersOf(Map<TopicPartition, Long> ends) throws Exception {
        until(() -> {
            Map<TopicPartition, Long> now = logEnds(ends.keySet());
            return ends.entrySet().stream().allMatch(end -> now.get(end.getKey()) > end.getValue());
        });
    }

    private void deleteRecords(JsonNode step) throws Exception {
        TopicPartition place = new TopicPartition(step.get("topic").asText(), step.get("partition").asInt());
        admin.deleteRecords(Map.of(place, RecordsToDelete.beforeOffset(step.get("before").asLong()))).all().get();
    }

    private void fetch(JsonNode step, ArrayNode batches) throws Exception {
        Member member = members.get(step.get("member").asText());
        String topic = step.get("topic").asText();
        ShareFetchRequestData data = new ShareFetchRequestData()
                .setGroupId(member.group)
                .setMemberId(member.id)
                .setShareSessionEpoch(member.sessionEpoch)
                .setMaxWaitMs(step.get("wait_ms").asInt())
                .setMinBytes(1)
                .setMaxBytes(1 << 20)
                .setMaxRecords(step.get("max_records").asInt())
                .setBatchSize(step.get("max_records").asInt())
                .setShareAcquireMode((byte) (step.get("record_limit").asBoolean() ? 1 : 0));
        if (member.partitions < step.get("partitions").asInt()) {
            var partitions = new ShareFetchRequestData.FetchPartitionCollection();
            for (int partition = member.partitions; partition < step.get("partitions").asInt(); partition++) {
                partitions.add(new ShareFetchRequestData.FetchPartition().setPartitionIndex(partition));
            }
            var topics = new ShareFetchRequestData.FetchTopicCollection();
            topics.add(new ShareFetchRequestData.FetchTopic().setTopicId(topicIds.get(topic)).setPartitions(partitions));
            data.setTopics(topics);
            member.partitions = step.get("partitions").asInt();
        }
        ShareFetchResponseData answer = ((ShareFetchResponse) ask(member, new ShareFetchRequest.Builder(data).build())).data();
        check(answer.errorCode(), "a fetch");
        member.sessionEpoch++;
        for (var ofTopic : answer.responses()) {
            for (var partition : ofTopic.partitions()) {
                check(partition.errorCode(), "a fetch of a partition");
                Map<Long, String> values = new TreeMap<>();
                for (var batch : ShareFetchResponse.recordsOrFail(partition).batches()) {
                    if (!batch.isControlBatch()) {
                        for (var record : batch) {
                            values.put(record.offset(), new String(bytes(record.value())));
                        }
                    }
                }
                for (var acquired : partition.acquiredRecords()) {
                    ObjectNode batch = batches.addObject()
                            .put("partition", partition.partitionIndex())
                            .put("first", acquired.firstOffset())
                            .put("last", acquired.lastOffset())
                            .put("count", acquired.deliveryCount());
                    ArrayNode records = batch.putArray("records");
                    values.forEach((offset, value) -> {
                        if (acquired.firstOffset() <= offset && offset <= acquired.lastOffset()) {
                            records.addArray().add(offset).add(value);
                        }
                    });
                }
            }
        }
    }

    private static byte[] bytes(ByteBuffer buffer) {
        byte[] bytes = new byte[buffer.remaining()];
        buffer.duplicate().get(bytes);
        return bytes;
    }

    private void acknowledge(JsonNode step) throws Exception {
        for (short code : settle(step, topicIds)) {
            check(code, "an acknowledgement of a partition");
        }
    }

    private void settleLate(JsonNode step, ArrayNode codes) throws Exception {
        settle(step, earlierIds).forEach(codes::add);
    }

    /** Returns: the error code of each partition. */
    private List<Short> settle(JsonNode step, Map<String, Uuid> ids) throws Exception {
        Member member = members.get(step.get("member").asText());
        Map<Integer, List<ShareAcknowledgeRequestData.AcknowledgementBatch>> batches = new TreeMap<>();
        for (JsonNode batch : step.get("batches")) {
            List<Byte> types = new ArrayList<>();
            batch.get("types").forEach(type -> types.add((byte) type.asInt()));
            batches.computeIfAbsent(batch.get("partition").asInt(), ignored -> new ArrayList<>())
                    .add(new ShareAcknowledgeRequestData.AcknowledgementBatch()
                            .setFirstOffset(batch.get("first").asLong())
                            .setLastOffset(batch.get("last").asLong())
                            .setAcknowledgeTypes(types));
        }
        var partitions = new ShareAcknowledgeRequestData.AcknowledgePartitionCollection();
        batches.forEach((partition, of) -> partitions.add(new ShareAcknowledgeRequestData.AcknowledgePartition()
                .setPartitionIndex(partition)
                .setAcknowledgementBatches(of)));
        var topics = new ShareAcknowledgeRequestData.AcknowledgeTopicCollection();
        topics.add(new ShareAcknowledgeRequestData.AcknowledgeTopic()
                .setTopicId(ids.get(step.get("topic").asText()))
                .setPartitions(partitions));
        List<Short> codes = acknowledge(member, member.sessionEpoch, topics);
        member.sessionEpoch++;
        return codes;
    }

    /** Close the share session of a member, which releases what it holds. Its next fetch opens another one. */
    private void leave(JsonNode step) throws Exception {
        Member member = members.get(step.get("member").asText());
        if (member.sessionEpoch > 0) {
            acknowledge(member, -1, new ShareAcknowledgeRequestData.AcknowledgeTopicCollection());
            member.sessionEpoch = 0;
            member.partitions = 0;
        }
    }

    private List<Short> acknowledge(Member member, int epoch, ShareAcknowledgeRequestData.AcknowledgeTopicCollection topics)
            throws Exception {
        ShareAcknowledgeRequestData data = new ShareAcknowledgeRequestData()
                .setGroupId(member.group)
                .setMemberId(member.id)
                .setShareSessionEpoch(epoch)
                .setTopics(topics);
        ShareAcknowledgeResponseData answer =
                ((ShareAcknowledgeResponse) ask(member, new ShareAcknowledgeRequest.Builder(data).build())).data();
        check(answer.errorCode(), "an acknowledgement");
        List<Short> codes = new ArrayList<>();
        answer.responses().forEach(topic -> topic.partitions().forEach(partition -> codes.add(partition.errorCode())));
        return codes;
    }

    private void ends(JsonNode step, ObjectNode answer) throws Exception {
        List<TopicPartition> places = places(step);
        answer.set("log_end", JSON.valueToTree(numbered(logEnds(places)).values()));
        answer.set("last_stable", JSON.valueToTree(numbered(offsets(places, IsolationLevel.READ_COMMITTED)).values()));
    }

    private static Map<Integer, Long> numbered(Map<TopicPartition, Long> offsets) {
        Map<Integer, Long> numbered = new TreeMap<>();
        offsets.forEach((place, offset) -> numbered.put(place.partition(), offset));
        return numbered;
    }

    private void offsets(JsonNode step, ArrayNode partitions) throws Exception {
        String group = step.get("group").asText();
        List<TopicPartition> places = places(step);
        var listed = admin.listShareGroupOffsets(Map.of(group, new ListShareGroupOffsetsSpec().topicPartitions(places)))
                .partitionsToOffsetInfo(group)
                .get();
        for (TopicPartition place : places) {
            var info = listed.get(place);
            partitions.addObject()
                    .put("start_offset", info == null ? -1 : info.startOffset())
                    .put("lag", info == null ? -1 : info.lag().orElse(-1L));
        }
    }

    /** End what the members of a script have. */
    private void forget() throws Exception {
        for (Member member : members.values()) {
            member.socket.close();
        }
        members.clear();
    }

    /** Go on with a broker that was started again: it knows the members, and none of their share sessions. */
    private void reconnect() throws Exception {
        until(this::hasGroupCoordinator);
        for (Member member : members.values()) {
            member.socket.close();
            member.socket = new Socket("127.0.0.1", port);
            member.socket.setSoTimeout(SOCKET_MS);
            member.sessionEpoch = 0;
            member.partitions = 0;
        }
    }

    // Asking

    private static List<TopicPartition> places(JsonNode step) {
        String topic = step.get("topic").asText();
        return IntStream.range(0, step.get("partitions").asInt()).mapToObj(p -> new TopicPartition(topic, p)).toList();
    }

    private Map<TopicPartition, Long> logEnds(Collection<TopicPartition> places) throws Exception {
        return offsets(places, IsolationLevel.READ_UNCOMMITTED);
    }

    private Map<TopicPartition, Long> offsets(Collection<TopicPartition> places, IsolationLevel level) throws Exception {
        Map<TopicPartition, OffsetSpec> wanted = new HashMap<>();
        places.forEach(place -> wanted.put(place, OffsetSpec.latest()));
        Map<TopicPartition, Long> ends = new HashMap<>();
        admin.listOffsets(wanted, new ListOffsetsOptions(level)).all().get().forEach((place, of) -> ends.put(place, of.offset()));
        return ends;
    }

    private static AbstractResponse ask(Member member, AbstractRequest request) throws Exception {
        RequestHeader header = new RequestHeader(request.apiKey(), request.version(), "compare", 1);
        ByteBuffer bytes = request.serializeWithHeader(header);
        DataOutputStream out = new DataOutputStream(member.socket.getOutputStream());
        byte[] whole = new byte[4 + bytes.remaining()];
        ByteBuffer.wrap(whole).putInt(bytes.remaining()).put(bytes);
        out.write(whole);
        out.flush();
        DataInputStream in = new DataInputStream(member.socket.getInputStream());
        byte[] answer = new byte[in.readInt()];
        in.readFully(answer);
        return AbstractResponse.parseResponse(ByteBuffer.wrap(answer), header);
    }

    private static void check(short code, String what) {
        if (code != Errors.NONE.code()) {
            throw new IllegalStateException(what + " was refused: " + Errors.forCode(code));
        }
    }

    /** Ask until it is so. A fault counts as no, until the deadline. */
    private static void until(Callable<Boolean> condition) throws Exception {
        long deadline = System.currentTimeMillis() + DEADLINE_MS;
        while (true) {
            Exception fault = null;
            try {
                if (condition.call()) {
                    return;
                }
            } catch (Exception refused) {
                fault = refused;
            }
            if (System.currentTimeMillis() > deadline) {
                throw new IllegalStateException("not within " + DEADLINE_MS + " ms", fault);
            }
            Thread.sleep(2);
        }
    }
}
