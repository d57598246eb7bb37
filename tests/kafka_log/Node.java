import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import kafka.Kafka;
import kafka.tools.StorageTool;

/** One broker and controller in this process. Arguments: its settings' file and the cluster's id. It ends with the standard input. */
public final class Node {
    public static void main(String[] arguments) throws Exception {
        ByteArrayOutputStream said = new ByteArrayOutputStream();
        String[] format = {"format", "--ignore-formatted", "-t", arguments[1], "-c", arguments[0]};
        if (StorageTool.execute(format, new PrintStream(said)) != 0) {
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
