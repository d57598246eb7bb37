import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.util.ArrayList;
import java.util.List;
import kafka.Kafka;
import kafka.tools.StorageTool;

/** One broker and controller in this process. Arguments: its settings' file, the cluster's id, more for the formatting. It ends with the standard input. */
public final class Node {
    public static void main(String[] arguments) throws Exception {
        ByteArrayOutputStream said = new ByteArrayOutputStream();
        List<String> format = new ArrayList<>(List.of("format", "--ignore-formatted", "-t", arguments[1], "-c", arguments[0]));
        format.addAll(List.of(arguments).subList(2, arguments.length));
        if (StorageTool.execute(format.toArray(new String[0]), new PrintStream(said)) != 0) {
            throw new IllegalStateException("the folder of the broker cannot be formatted: " + said);
        }
        Thread broker = new Thread(() -> Kafka.main(new String[] {arguments[0]}), "broker");
        broker.setDaemon(true);
        broker.start();
        while (System.in.read() >= 0) {
        }
        Runtime.getRuntime().halt(0); // its folder goes with it
    }
}
